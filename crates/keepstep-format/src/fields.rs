//! The fields of records and cards: the only table of their numbers and names.
//!
//! The spec (§5 to §7, §11) says what each holds. The tests below compare the two.

/// Declares each field as a constant, and all of them as a list.
macro_rules! fields {
    ($($constant:ident = $number:literal $name:literal;)*) => {
        $(#[doc = concat!("`", $name, "`")] pub const $constant: u8 = $number;)*

        /// Every field: its number, and its name as people write it.
        pub const ALL: &[(u8, &str)] = &[$(($number, $name)),*];

        /// The name of a field, as people write it; unknown ones have none.
        pub const fn name(field: u8) -> Option<&'static str> {
            match field {
                $($number => Some($name),)*
                _ => None,
            }
        }
    };
}

fields! {
    TIME = 1 "time";
    INDEX = 2 "index";
    STEP_KIND = 3 "step_kind";
    OBSERVATION = 4 "observation";
    ACTION = 5 "action";
    REWARD = 6 "reward";
    REWARD_TERMS = 7 "reward_terms";
    DISCOUNT = 8 "discount";
    PROMPT = 9 "prompt";
    RESPONSE = 10 "response";
    TOKENS = 11 "tokens";
    POLICY = 12 "policy";
    AGENT = 13 "agent";
    INFO = 14 "info";
    STATE = 15 "state";
    ERROR = 16 "error";
    FAILED = 17 "failed";
    RUN = 20 "run";
    GENERATION_ID = 21 "generation_id";
    TASK = 22 "task";
    ITERATION = 23 "iteration";
    SAMPLE = 24 "sample";
    PARENT = 25 "parent";
    META = 26 "meta";
    RESUMED = 27 "resumed";
    UNNAMED = 28 "unnamed";
    INHERITED = 29 "inherited";
    NAME = 30 "name";
    KEY = 31 "key";
    ORDINAL = 32 "ordinal";
    ARGUMENTS = 33 "arguments";
    RESULT = 34 "result";
    AWAITED = 35 "awaited";
    VALUE = 41 "value";
    SOURCE = 42 "source";
    TARGET = 43 "target";
    TARGET_ATTEMPT = 44 "target_attempt";
    WHY = 50 "why";
    LIMIT = 51 "limit";
    SAID_BY = 52 "said_by";
    EVIDENCE = 53 "evidence";
    REASON = 54 "reason";
    GENERATION = 60 "generation";
    CONFIG = 61 "config";
    LINKS = 62 "links";
    WRITER = 63 "writer";
    ATTEMPT = 64 "attempt";
    EPISODE = 65 "episode";
    IS_VOID = 66 "is_void";
    COUNTED = 67 "counted";
    MORE_SPANS = 68 "more_spans";
    CLOSED = 69 "closed";
    STEPS = 70 "steps";
    RETURN = 71 "return";
    FIRST_TIME = 72 "first_time";
    LAST_TIME = 73 "last_time";
    BOOT = 74 "boot";
    PROCESS = 75 "process";
    HOST = 76 "host";
    PLANNED = 77 "planned";
    NEEDS = 78 "needs";
    WHAT = 79 "what";
    SPANS = 80 "spans";
    SEGMENT = 81 "segment";
    SYNCED_TO = 82 "synced_to";
    VALID_TO = 83 "valid_to";
    FILE_BYTES = 84 "file_bytes";
    HOLES = 85 "holes";
    FOOTER = 86 "footer";
    LISTS = 87 "lists";
    HEALED = 88 "healed";
    ENDS = 89 "ends";
    GROUP = 90 "group";
    MEMBERS = 91 "members";
    MISSING = 92 "missing";
    STREAM = 93 "stream";
    ENTRIES = 94 "entries";
    CONFLICTS = 95 "conflicts";
    HELD = 96 "held";
    TO_DELETE = 97 "to_delete";
    PRUNED = 98 "pruned";
    PRUNING = 99 "pruning";
    SUMMARY_RULE = 100 "summary_rule";
    GROUP_SIZE = 101 "group_size";
    RETURN_REST = 102 "return_rest";
    FOUND = 103 "found";
    MADE_BY = 104 "made_by";
    ORIGINS = 110 "origins";
    MOVED_BY = 111 "moved_by";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_names_are_given_once() {
        assert!(ALL.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let names: std::collections::HashSet<&str> = ALL.iter().map(|(_, name)| *name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|(number, _)| *number < 0x80), "older readers take no higher ones");
    }

    /// The table of the spec has the fields of records, each with its number.
    #[test]
    fn the_spec_has_the_same_fields() {
        // Read when it is tested: the published crate has no docs folder.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/format.md");
        let spec = std::fs::read_to_string(path).expect("the spec is there");
        let begins = spec.find("| no | field |").expect("the table is there");
        let table = &spec[begins..begins + spec[begins..].find("\n\n").expect("it ends")];
        for (number, name) in ALL.iter().filter(|(number, _)| *number <= EPISODE) {
            let is_there = table.contains(&format!("| {number} | {name},"))
                || table.contains(&format!("| {number} | {name} |"));
            assert!(is_there, "{number} {name}");
        }
        let numbers = table.split('|').filter_map(|cell| cell.trim().parse::<u8>().ok());
        for number in numbers.filter(|number| *number <= EPISODE) {
            assert!(name(number).is_some(), "the spec has {number}");
        }
    }
}
