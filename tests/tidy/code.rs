//! Just enough of Rust's syntax to tell code from comments and strings, and functions apart.

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Line of `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

/// The text with comments and the insides of literals blanked; line breaks stay where they are.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = blank_end(&chars, at);
        if end > at {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// The end of what is no code and begins at `at`; `at` itself where code goes on.
fn blank_end(chars: &[char], at: usize) -> usize {
    let next = |i: usize| chars.get(at + i).copied().unwrap_or('\0');
    match chars[at] {
        '/' if next(1) == '/' => find(chars, at, |c| c == '\n'),
        '/' if next(1) == '*' => block_comment_end(chars, at),
        '"' => quoted_end(chars, at, '"'),
        // A lifetime is no literal: its quote is not closed behind one character.
        '\'' if next(1) == '\\' || (next(2) == '\'' && next(1) != '\'') => {
            quoted_end(chars, at, '\'')
        }
        'r' if !is_word_before(chars, at) => raw_string_end(chars, at),
        _ => at,
    }
}

fn find(chars: &[char], from: usize, is_end: impl Fn(char) -> bool) -> usize {
    chars[from..].iter().position(|&c| is_end(c)).map_or(chars.len(), |offset| from + offset)
}

fn is_word_before(chars: &[char], at: usize) -> bool {
    // `br"..."` is a raw string as well.
    let at = if at > 0 && chars[at - 1] == 'b' { at - 1 } else { at };
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], at: usize, quote: char) -> usize {
    let mut i = at + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

fn raw_string_end(chars: &[char], at: usize) -> usize {
    let open = find(chars, at + 1, |c| c != '#');
    if chars.get(open) != Some(&'"') {
        return at;
    }
    let hashes = open - at - 1;
    let closes =
        |&i: &usize| chars[i] == '"' && (1..=hashes).all(|h| chars.get(i + h) == Some(&'#'));
    (open + 1..chars.len()).find(closes).map_or(chars.len(), |i| i + 1 + hashes)
}

/// The functions with bodies in text without comments and literals.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + 3..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // A function type has no name, a declaration ends in a semicolon.
        let Some(len) = body_end(rest).filter(|_| !name.is_empty()) else { continue };
        let line = code[..at].matches('\n').count() + 1;
        let lines = rest[..len].matches('\n').count() + 1;
        found.push(Function { name, line, lines });
    }
    found
}

/// Where the body that follows a function's head ends.
fn body_end(rest: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (i, c) in rest.char_indices() {
        match c {
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces <= 0 {
                    return (braces == 0).then_some(i);
                }
            }
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            _ => {}
        }
    }
    None
}

#[test]
fn comments_and_literals_are_blanked() {
    let text = r##"let a = "x // }"; /* { /* } */ */ let b = '{'; // }
        let c: &'static str = r#"}"{"#; let d = b"\"}";"##;
    let code = code_only(text);
    assert!(!code.contains(['{', '}', '/']), "{code}");
    assert!(code.contains("let b =") && code.contains("&'static str") && code.contains("let d"));
    assert_eq!(code.len(), text.len());
}

#[test]
fn functions_are_measured() {
    let code = "trait T { fn no(&self, a: [u8; 4]); }\nfn one() {}\nfn three() {\n if a {}\n}\n";
    let found = functions(code);
    let expect = [("one", 2, 1), ("three", 3, 3)];
    let expect = expect.map(|(name, line, lines)| Function { name: name.into(), line, lines });
    assert_eq!(found, expect);
}
