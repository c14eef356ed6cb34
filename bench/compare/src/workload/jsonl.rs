//! How long steps would be as full-history JSONL, without writing the gigabytes down.

/// A line `{"prompt":[…],"response":[…]}` and its newline, from the lengths of the items in it.
pub fn line_bytes(prompt: &[u64], response: &[u64]) -> u64 {
    let frame = br#"{"prompt":,"response":}"#.len() as u64 + 1;
    frame + list_bytes(prompt) + list_bytes(response)
}

/// `{"role":…,"content":…}` with the content as long as its bytes: no escapes, no base64 to flatter us.
pub fn message_bytes(role: &str, content_bytes: usize) -> u64 {
    (br#"{"role":"","content":""}"#.len() + role.len() + content_bytes) as u64
}

fn list_bytes(items: &[u64]) -> u64 {
    let commas = items.len().saturating_sub(1) as u64;
    2 + commas + items.iter().sum::<u64>()
}
