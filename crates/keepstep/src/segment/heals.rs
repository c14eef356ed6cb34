//! Values that were lost to damage and found elsewhere, by their hash.

use std::collections::HashMap;

use keepstep_format::card::kind;
use keepstep_format::fields;
use keepstep_format::hash::Hash;
use keepstep_format::value::Value;

use super::cards::{CardFound, Fields, read_card};
use super::names::{HEALS, heal_path, list_numbered};
use super::storage::Storage;

/// Knows which card has which value. It keeps the card that was used last.
#[derive(Debug, Default)]
pub(super) struct Heals {
    is_fresh: bool,
    next: u64,
    card_of: HashMap<Hash, u64>,
    bad: Vec<String>,
    held: Option<(u64, Vec<(Hash, Value)>)>,
}

impl Heals {
    pub(super) fn look_again(&mut self) {
        self.is_fresh = false;
    }

    pub(super) fn bad(&self) -> &[String] {
        &self.bad
    }

    pub(super) fn get(&mut self, storage: &Storage, hash: &Hash) -> Option<Value> {
        self.refresh(storage);
        let number = *self.card_of.get(hash)?;
        if self.held.as_ref().is_none_or(|(held, _)| *held != number) {
            self.held = Some((number, read(storage, number)?));
        }
        let (_, values) = self.held.as_ref()?;
        values.iter().find(|(found, _)| found == hash).map(|(_, value)| value.clone())
    }

    fn refresh(&mut self, storage: &Storage) {
        if std::mem::replace(&mut self.is_fresh, true) {
            return;
        }
        // If the folder cannot be listed, no value is healed; lost values stay reported as lost.
        for number in list_numbered(storage.disk(), HEALS).unwrap_or_default() {
            if number < self.next {
                continue;
            }
            match read(storage, number) {
                Some(values) => {
                    self.card_of.extend(values.iter().map(|(hash, _)| (*hash, number)));
                    self.held = Some((number, values));
                }
                None => self.bad.push(heal_path(number)),
            }
            self.next = number + 1;
        }
    }
}

fn read(storage: &Storage, number: u64) -> Option<Vec<(Hash, Value)>> {
    match read_card(storage, &heal_path(number), kind::HEAL) {
        Ok(CardFound::Card(card)) => healed_values(&card),
        _ => None,
    }
}

/// The values of a card HEAL.
pub(crate) fn healed_values(card: &Fields) -> Option<Vec<(Hash, Value)>> {
    let list = card.get(fields::HEALED)?.as_list()?;
    let pair =
        |entry: &Value| Some((entry.get("hash")?.as_bytes()?.try_into().ok()?, entry.get("value")?.clone()));
    list.iter().map(pair).collect()
}
