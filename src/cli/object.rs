//! One JSON object a line, as the tools that look at files print them.

use crate::format::schema::Value;

/// An object that says in `kind` what it is.
pub fn object(kind: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let kind = ("kind", Value::Text(kind.to_owned()));
    Value::Struct([kind].into_iter().chain(fields).collect())
}

/// A string.
pub fn text(what: impl ToString) -> Value {
    Value::Text(what.to_string())
}

/// A number.
pub fn number(it: impl Into<i64>) -> Value {
    Value::Number(it.into())
}

/// A position or a size.
pub fn long(it: u64) -> Value {
    Value::Number(i64::try_from(it).expect("positions and sizes have 63 bits"))
}

/// A number, if there is one.
pub fn or_null(it: Option<i64>) -> Value {
    it.map_or(Value::Null, Value::Number)
}
