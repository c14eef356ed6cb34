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
    Json(LargeStringBuilder),
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
            Form::Json => Self::Json(LargeStringBuilder::new()),
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

    /// Adds a cell; one of another form than the column's is a null.
    pub(super) fn push(&mut self, cell: Cell) {
        match (self, cell) {
            (Self::Text(column), Cell::Text(text)) => column.append_value(text),
            (Self::Json(column), Cell::Text(text)) => column.append_value(text),
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
            (builder, _) => builder.push_null(),
        }
    }

    fn push_null(&mut self) {
        match self {
            Self::Text(column) => column.append_null(),
            Self::Json(column) => column.append_null(),
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
    }

    /// The column as it stands.
    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(column) => ArrayBuilder::finish(column),
            Self::Json(column) => ArrayBuilder::finish(column),
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
