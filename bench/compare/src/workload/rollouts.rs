//! Real rollouts, replayed as the multi-turn episodes that a recorder sees.
//!
//! Each model turn is the run of items up to the next `function_call_output`; its prompt is everything before it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::jsonl;

/// One rollout: a list of items, and where in it each turn lies.
pub struct Rollout {
    items: Vec<Value>,
    /// For each turn: how many items are its prompt, and where its response ends.
    turns: Vec<(usize, usize)>,
}

/// What the model had before it, and what it said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn<'a> {
    pub prompt: &'a [Value],
    pub response: &'a [Value],
}

impl Rollout {
    fn new(input: Vec<Value>, output: Vec<Value>) -> Self {
        let first_output = input.len();
        let mut items = input;
        items.extend(output);
        let mut turns = Vec::new();
        let mut at = first_output;
        while at < items.len() {
            let length = items[at..].iter().take_while(|item| !is_tool_output(item)).count();
            if length > 0 {
                turns.push((at, at + length));
            }
            at += length + items[at + length..].iter().take_while(|item| is_tool_output(item)).count();
        }
        Rollout { items, turns }
    }

    pub fn turns(&self) -> impl Iterator<Item = Turn<'_>> {
        let turn = |&(start, end): &(usize, usize)| Turn {
            prompt: &self.items[..start],
            response: &self.items[start..end],
        };
        self.turns.iter().map(turn)
    }

    /// The same steps as JSONL, each line with its whole prompt: `{"prompt":[…],"response":[…]}`.
    pub fn jsonl_bytes(&self) -> u64 {
        let lengths: Vec<u64> = self.items.iter().map(json_bytes).collect();
        let line =
            |&(start, end): &(usize, usize)| jsonl::line_bytes(&lengths[..start], &lengths[start..end]);
        self.turns.iter().map(line).sum()
    }
}

/// All rollouts of a folder, in the order of its file names. `None` if there are none.
pub fn load(dir: &Path) -> Option<Vec<Rollout>> {
    let mut files: Vec<_> = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let lines = files.iter().map(|path| fs::read_to_string(path).expect("could not read a file of rollouts"));
    let rollouts: Vec<Rollout> = lines.flat_map(|text| text.lines().map(parse).collect::<Vec<_>>()).collect();
    (!rollouts.is_empty()).then_some(rollouts)
}

fn parse(line: &str) -> Rollout {
    let mut rollout: Value = serde_json::from_str(line).expect("a rollout is not JSON");
    let input = match rollout["responses_create_params"]["input"].take() {
        Value::Array(items) => items,
        Value::String(text) => vec![serde_json::json!({ "role": "user", "content": text })],
        other => panic!("a rollout's input is neither a list nor a text: {other}"),
    };
    let Value::Array(output) = rollout["response"]["output"].take() else {
        panic!("a rollout has no output")
    };
    Rollout::new(input, output)
}

fn is_tool_output(item: &Value) -> bool {
    item["type"] == "function_call_output"
}

fn json_bytes(value: &Value) -> u64 {
    serde_json::to_vec(value).expect("JSON comes out as it went in").len() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(kind: &str, number: u32) -> Value {
        json!({ "type": kind, "n": number })
    }

    /// Reasoning and calls belong to the turn, outputs to the next prompt, and outputs at the end to nobody.
    #[test]
    fn a_turn_ends_at_the_next_tool_output_and_has_all_before_it_as_prompt() {
        let all = [
            item("message", 0),
            item("reasoning", 1),
            item("function_call", 2),
            item("function_call", 3),
            item("function_call_output", 4),
            item("function_call_output", 5),
            item("message", 6),
            item("function_call_output", 7),
        ];
        let rollout = Rollout::new(all[..1].to_vec(), all[1..].to_vec());
        let turns: Vec<Turn<'_>> = rollout.turns().collect();
        assert_eq!(
            turns,
            [
                Turn { prompt: &all[..1], response: &all[1..4] },
                Turn { prompt: &all[..6], response: &all[6..7] }
            ]
        );
    }

    /// The size is counted, not built: it must be what building would give.
    #[test]
    fn the_counted_bytes_are_those_of_the_lines() {
        let input = vec![item("message", 0), item("message", 1)];
        let output = vec![item("function_call", 2), item("function_call_output", 3), item("message", 4)];
        let rollout = Rollout::new(input, output);
        let line =
            |turn: Turn<'_>| format!("{}\n", json!({ "prompt": turn.prompt, "response": turn.response }));
        let built: usize = rollout.turns().map(|turn| line(turn).len()).sum();
        assert_eq!(rollout.jsonl_bytes(), built as u64);
    }
}
