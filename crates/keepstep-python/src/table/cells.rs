//! Cells, and the columns of a batch that they are put into.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, LargeStringBuilder, ListBuilder, MapBuilder,
    StringBuilder, TimestampMicrosecondBuilder,
};
use keepstep::Value;
use keepstep::export::json::write_value;

use super::columns::Form;

/// What stands in one row of one column.
pub(super) enum Cell {
    Null,
    Text(String),
    /// A number, or microseconds since 1970.
    Int(i64),
    Float(f64),
    Truth(bool),
    Texts(Vec<String>),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Terms(Vec<(String, f64)>),
}

impl Cell {
    pub(super) fn text(text: Option<&str>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.to_owned()))
    }

    pub(super) fn int(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Int)
    }

    pub(super) fn float(number: Option<f64>) -> Self {
        number.map_or(Self::Null, Self::Float)
    }

    /// A recorded value as `export` writes it.
    pub(super) fn json(value: Option<&Value>) -> Self {
        value.map_or(Self::Null, |value| Self::Text(json(value)))
    }

    /// About how many bytes it takes in a batch.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Null | Self::Int(_) | Self::Float(_) | Self::Truth(_) => 8,
            Self::Text(text) => text.len() + 8,
            Self::Texts(texts) => texts.iter().map(|text| text.len() + 8).sum(),
            Self::Ints(numbers) => numbers.len() * 8,
            Self::Floats(numbers) => numbers.len() * 8,
            Self::Terms(terms) => terms.iter().map(|(name, _)| name.len() + 16).sum(),
        }
    }
}

/// A recorded value as `export` writes it.
pub(super) fn json(value: &Value) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = write_value(&mut text, value);
    text
}

/// A column of the batch in the making.
pub(super) enum Builder {
    Text(StringBuilder),
    Json(LargeStringBuilder, ListText),
    Int(Int64Builder),
    Float(Float64Builder),
    Truth(BooleanBuilder),
    Time(TimestampMicrosecondBuilder),
    Texts(ListBuilder<StringBuilder>),
    Ints(ListBuilder<Int64Builder>),
    Floats(ListBuilder<Float64Builder>),
    Terms(Box<MapBuilder<StringBuilder, Float64Builder>>),
}

impl Builder {
    pub(super) fn new(form: Form) -> Self {
        match form {
            Form::Text => Self::Text(StringBuilder::new()),
            Form::Json => Self::Json(LargeStringBuilder::new(), ListText::default()),
            Form::Int => Self::Int(Int64Builder::new()),
            Form::Float => Self::Float(Float64Builder::new()),
            Form::Truth => Self::Truth(BooleanBuilder::new()),
            Form::Time => {
                Self::Time(TimestampMicrosecondBuilder::new().with_data_type(Form::Time.data_type()))
            }
            Form::Texts => Self::Texts(ListBuilder::new(StringBuilder::new())),
            Form::Ints => Self::Ints(ListBuilder::new(Int64Builder::new())),
            Form::Floats => Self::Floats(ListBuilder::new(Float64Builder::new())),
            Form::Terms => {
                let terms = MapBuilder::new(None, StringBuilder::new(), Float64Builder::new());
                Self::Terms(Box::new(terms))
            }
        }
    }

    /// Adds a text, and says how many bytes that takes.
    pub(super) fn text(&mut self, text: Option<&str>) -> usize {
        match (self, text) {
            (Self::Text(column), Some(text)) => {
                column.append_value(text);
                text.len() + 8
            }
            (Self::Json(column, _), Some(text)) => {
                column.append_value(text);
                text.len() + 8
            }
            (builder, _) => builder.push_null(),
        }
    }

    /// Adds a recorded value as `export` writes it, and says how many bytes that takes.
    pub(super) fn json(&mut self, value: &Value) -> usize {
        let Self::Json(column, known) = self else { return self.push_null() };
        let before = column.values_slice().len();
        match value.plain() {
            Value::List(items) => column.append_value(known.written(items)),
            value => {
                // Writing to a column cannot fail.
                let _ = write_value(column, value);
                column.append_value("");
            }
        }
        column.values_slice().len() - before + 8
    }

    /// Adds an integer, and says how many bytes that takes.
    pub(super) fn int(&mut self, number: Option<i64>) -> usize {
        match self {
            Self::Int(column) => column.append_option(number),
            Self::Time(column) => column.append_option(number),
            builder => return builder.push_null(),
        }
        8
    }

    /// Adds a float, and says how many bytes that takes.
    pub(super) fn float(&mut self, number: Option<f64>) -> usize {
        let Self::Float(column) = self else { return self.push_null() };
        column.append_option(number);
        8
    }

    /// Adds names, and says how many bytes that takes.
    pub(super) fn names(&mut self, names: &[&'static str]) -> usize {
        let Self::Texts(column) = self else { return self.push_null() };
        names.iter().for_each(|name| column.values().append_value(name));
        column.append(true);
        names.iter().map(|name| name.len() + 8).sum()
    }

    /// Adds a cell, and says how many bytes that takes; one of another form than the column's is a null.
    pub(super) fn push(&mut self, cell: Cell) -> usize {
        let bytes = cell.bytes();
        match (self, cell) {
            (Self::Text(column), Cell::Text(text)) => column.append_value(text),
            (Self::Json(column, _), Cell::Text(text)) => column.append_value(text),
            (Self::Int(column), Cell::Int(number)) => column.append_value(number),
            (Self::Time(column), Cell::Int(time_us)) => column.append_value(time_us),
            (Self::Float(column), Cell::Float(number)) => column.append_value(number),
            (Self::Truth(column), Cell::Truth(truth)) => column.append_value(truth),
            (Self::Texts(column), Cell::Texts(texts)) => column.append_value(texts.into_iter().map(Some)),
            (Self::Ints(column), Cell::Ints(numbers)) => {
                column.values().append_slice(&numbers);
                column.append(true);
            }
            (Self::Floats(column), Cell::Floats(numbers)) => {
                column.values().append_slice(&numbers);
                column.append(true);
            }
            (Self::Terms(column), Cell::Terms(terms)) => {
                for (name, number) in terms {
                    column.keys().append_value(name);
                    column.values().append_value(number);
                }
                // Names and numbers were added in pairs.
                let _ = column.append(true);
            }
            (builder, _) => return builder.push_null(),
        }
        bytes
    }

    /// Adds nothing, and says how many bytes that takes.
    pub(super) fn push_null(&mut self) -> usize {
        match self {
            Self::Text(column) => column.append_null(),
            Self::Json(column, _) => column.append_null(),
            Self::Int(column) => column.append_null(),
            Self::Float(column) => column.append_null(),
            Self::Truth(column) => column.append_null(),
            Self::Time(column) => column.append_null(),
            Self::Texts(column) => column.append_null(),
            Self::Ints(column) => column.append_null(),
            Self::Floats(column) => column.append_null(),
            Self::Terms(column) => {
                let _ = column.append(false);
            }
        }
        8
    }

    /// The column as it stands.
    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(column) => ArrayBuilder::finish(column),
            Self::Json(column, _) => ArrayBuilder::finish(column),
            Self::Int(column) => ArrayBuilder::finish(column),
            Self::Float(column) => ArrayBuilder::finish(column),
            Self::Truth(column) => ArrayBuilder::finish(column),
            Self::Time(column) => ArrayBuilder::finish(column),
            Self::Texts(column) => ArrayBuilder::finish(column),
            Self::Ints(column) => ArrayBuilder::finish(column),
            Self::Floats(column) => ArrayBuilder::finish(column),
            Self::Terms(column) => Arc::new(column.finish()),
        }
    }
}

/// The text of the list that was written last. A history grows by a message each step: what it had before is not written
/// again, if it is the same in memory.
#[derive(Default)]
pub(super) struct ListText {
    items: Option<Arc<Vec<Value>>>,
    text: String,
    /// Where each item ends in the text.
    ends: Vec<usize>,
}

impl ListText {
    /// The text of a list.
    fn written(&mut self, items: &Arc<Vec<Value>>) -> &str {
        let known = self.items.as_ref().map_or(&[][..], |items| items);
        let same = known.iter().zip(items.iter()).take_while(|(a, b)| is_same(a, b)).count();
        self.ends.truncate(same);
        self.text.truncate(self.ends.last().copied().unwrap_or(0));
        if same == 0 {
            self.text.push('[');
        }
        for (at, item) in items.iter().enumerate().skip(same) {
            self.text.push_str(if at > 0 { "," } else { "" });
            // Writing to a text cannot fail.
            let _ = write_value(&mut self.text, item);
            self.ends.push(self.text.len());
        }
        self.text.push(']');
        self.items = Some(Arc::clone(items));
        &self.text
    }
}

/// True if two values are the same in memory. Equal ones need not be.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => Arc::ptr_eq(a, b),
        (Value::List(a), Value::List(b)) => Arc::ptr_eq(a, b),
        (Value::Map(a), Value::Map(b)) => Arc::ptr_eq(a, b),
        (Value::Array(a), Value::Array(b)) => Arc::ptr_eq(a, b),
        (Value::Typed(name, a), Value::Typed(other, b)) => name == other && Arc::ptr_eq(a, b),
        _ => false,
    }
}
