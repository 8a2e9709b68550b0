//! Decoded values, and the JSON that Kafka's tools print of them.

use std::fmt::Write;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A field's value, or a whole record's.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number of any width.
    Number(i64),
    /// A floating point number.
    Float(f64),
    /// A string, or an id as Kafka writes ids.
    Text(String),
    /// Bytes; base64 in JSON.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<Value>),
    /// Names and values in the order of the field list.
    Struct(Vec<(&'static str, Value)>),
}

impl Value {
    /// The field of a struct; `None` when there is none of that name, or this is no struct.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let Value::Struct(fields) = self else { return None };
        fields.iter().find(|field| field.0 == name).map(|field| &field.1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let Value::Struct(fields) = self else { return None };
        fields.iter_mut().find(|field| field.0 == name).map(|field| &mut field.1)
    }

    /// JSON on one line without spaces.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    /// Appends the JSON.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(it) => out.push_str(if *it { "true" } else { "false" }),
            Value::Number(number) => push(out, format_args!("{number}")),
            Value::Float(number) => out.push_str(&java_double(*number)),
            Value::Text(text) => write_text(text, out),
            Value::Bytes(bytes) => write_base64(bytes, out),
            Value::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at != 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            Value::Struct(fields) => {
                out.push('{');
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at != 0 {
                        out.push(',');
                    }
                    write_text(name, out);
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }
}

fn push(out: &mut String, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a string takes everything");
}

/// A JSON string, escaped as Jackson does: what JSON asks for, with capitals in `\u001F`.
pub fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..'\u{20}' => push(out, format_args!("\\u{:04X}", u32::from(character))),
            _ => out.push(character),
        }
    }
    out.push('"');
}

fn write_base64(bytes: &[u8], out: &mut String) {
    out.push('"');
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for at in 0..4 {
            let sextet = usize::try_from((bits >> (18 - 6 * at)) & 0x3f).expect("six bits");
            // The third and fourth character need the second and third byte.
            out.push(if group.len() < at { '=' } else { char::from(BASE64[sextet]) });
        }
    }
    out.push('"');
}

/// As Java's `Double.toString` writes a number.
fn java_double(number: f64) -> String {
    let magnitude = number.abs();
    if number == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{number:?}");
    }
    if !number.is_finite() {
        let sign = if number < 0.0 { "-" } else { "" };
        return if number.is_nan() { "NaN".to_owned() } else { format!("{sign}Infinity") };
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').expect("the form has an exponent");
    let point = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{point}E{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_as_jackson_does() {
        let value = Value::Struct(vec![
            ("text", Value::Text("a\"\\\u{1}\u{1f}\n\u{7f}é".to_owned())),
            (
                "bytes",
                Value::List(vec![
                    Value::Bytes(vec![]),
                    Value::Bytes(vec![0xfb]),
                    Value::Bytes(vec![0xfb, 0xff]),
                    Value::Bytes(vec![0xfb, 0xff, 0xfe]),
                ]),
            ),
            ("more", Value::List(vec![Value::Null, Value::Bool(true), Value::Number(-1)])),
        ]);
        let expected = "{\"text\":\"a\\\"\\\\\\u0001\\u001F\\n\u{7f}é\",\
                        \"bytes\":[\"\",\"+w==\",\"+/8=\",\"+//+\"],\"more\":[null,true,-1]}";
        assert_eq!(value.to_json(), expected);
    }

    #[test]
    fn numbers_with_a_point_are_java_s() {
        for (number, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (0.001, "0.001"),
            (0.0009, "9.0E-4"),
            (1_048_576.0, "1048576.0"),
            (10_485_760.0, "1.048576E7"),
            (-2e7, "-2.0E7"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(java_double(number), text);
        }
    }
}
