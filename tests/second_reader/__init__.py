"""A second reader of keepstep stores, written from docs/internals/format.md and nothing else.

It shares no code and no author's memory with the Rust one: where the two disagree, one of them or the page is wrong.
"""
