"""Stands in for LangChain's core, as far as LangGraph's savers name it."""
