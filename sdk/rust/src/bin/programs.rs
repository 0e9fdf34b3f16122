//! The programs that every SDK is tested with: echo, filter, split, slow.

use millstream_action::Action;
use std::time::Duration;

fn echo(action: &mut Action, payload: &[u8]) {
    if payload.is_empty() {
        action.ack_message();
    } else {
        action.write_message(payload);
    }
}

fn filter(action: &mut Action, payload: &[u8], divisor: u32) {
    if payload == b"fatal" {
        action.fatal("as you wish");
    }
    match <[u8; 4]>::try_from(payload) {
        Err(_) => action.write_error(format!("{} bytes are no number", payload.len())),
        Ok(number) if u32::from_be_bytes(number) % divisor != 0 => action.ack_message(),
        Ok(_) => action.write_message(payload),
    }
}

fn split(action: &mut Action, payload: &[u8]) {
    for part in payload.split(|byte| *byte == b',').filter(|part| !part.is_empty()) {
        action.write_message(part);
    }
    action.ack_message();
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let argument: u32 = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut action = Action::new();
    while let Some(payload) = action.read_message() {
        match name.as_str() {
            "filter" => filter(&mut action, &payload, argument),
            "split" => split(&mut action, &payload),
            "slow" => {
                std::thread::sleep(Duration::from_millis(argument.into()));
                echo(&mut action, &payload);
            }
            _ => echo(&mut action, &payload),
        }
    }
}
