//! TensorBoard event files: TFRecords (length, its checksum, message, its checksum) of TensorFlow's `Event` messages.

use crc::{CRC_32_ISCSI, Crc};
use serde_json::Value;

const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The masked checksum of TFRecord: CRC-32C, rotated and offset, so that the CRC of data that contain CRCs stays meaningful.
fn masked(bytes: &[u8]) -> u32 {
    const MOVE: u32 = 0xa282_ead8;
    CASTAGNOLI.checksum(bytes).rotate_right(15).wrapping_add(MOVE)
}

/// A protocol-buffer message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u64, kind: u64) {
        self.varint(field << 3 | kind);
    }

    fn whole(mut self, field: u64, value: u64) -> Self {
        self.tag(field, 0);
        self.varint(value);
        self
    }

    fn double(mut self, field: u64, value: f64) -> Self {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(mut self, field: u64, value: f32) -> Self {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// Appends the message as a record.
    fn write(&self, file: &mut Vec<u8>) {
        let length = (self.0.len() as u64).to_le_bytes();
        file.extend(length);
        file.extend(masked(&length).to_le_bytes());
        file.extend(&self.0);
        file.extend(masked(&self.0).to_le_bytes());
    }
}

/// The records of a run that began at `start`, in seconds since 1970, as an event file.
pub fn events(records: &[Value], start: f64) -> Vec<u8> {
    let mut file = Vec::new();
    Message::default().double(1, start).bytes(3, b"brain.Event:2").write(&mut file);
    for record in records {
        let mut summary = Message::default();
        for (name, value) in super::scalars(record) {
            let value = Message::default().bytes(1, name.as_bytes()).float(2, value as f32);
            summary = summary.bytes(1, &value.0);
        }
        let time = start + record["seconds"].as_f64().unwrap_or(0.0);
        let step = record["step"].as_u64().unwrap_or(0);
        Message::default().double(1, time).whole(2, step).bytes(5, &summary.0).write(&mut file);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The published check value of the polynomial, and its mask computed by hand.
    #[test]
    fn the_checksum_is_that_of_the_format() {
        assert_eq!(CASTAGNOLI.checksum(b"123456789"), 0xe306_9283);
        assert_eq!(masked(b"123456789"), 0xc78a_b0e5);
    }

    /// An independent reader: checks the checksums, and returns fields by number.
    fn read(mut file: &[u8]) -> Vec<Vec<(u64, Field)>> {
        let mut events = Vec::new();
        while !file.is_empty() {
            let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
            let sum = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
            assert_eq!(sum(8), masked(&file[..8]));
            assert_eq!(sum(12 + length), masked(&file[12..12 + length]));
            events.push(fields(&file[12..12 + length]));
            file = &file[16 + length..];
        }
        events
    }

    #[derive(Debug, PartialEq, Clone)]
    enum Field {
        Whole(u64),
        Double(f64),
        Float(f32),
        Bytes(Vec<u8>),
    }

    fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in 0.. {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << (7 * shift);
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let mut take = |count: usize| {
                let (taken, rest) = bytes.split_at(count);
                bytes = rest;
                taken
            };
            let field = match tag & 7 {
                1 => Field::Double(f64::from_le_bytes(take(8).try_into().unwrap())),
                5 => Field::Float(f32::from_le_bytes(take(4).try_into().unwrap())),
                0 => Field::Whole(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (taken, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(taken.to_vec())
                }
                kind => panic!("kind {kind}"),
            };
            found.push((tag >> 3, field));
        }
        found
    }

    #[test]
    fn what_is_written_can_be_read() {
        let records = [
            json!({"step": 300, "seconds": 2.5, "train_loss": 0.25}),
            json!({"step": 301, "memory": {"peak": 7}}),
        ];
        let events = read(&events(&records, 1000.0));
        assert_eq!(events.len(), 3);
        assert_eq!(events[0], [(1, Field::Double(1000.0)), (3, Field::Bytes(b"brain.Event:2".to_vec()))]);
        assert_eq!(events[1][..2], [(1, Field::Double(1002.5)), (2, Field::Whole(300))]);
        let Field::Bytes(summary) = &events[1][2].1 else { panic!("{:?}", events[1]) };
        let values: Vec<Vec<(u64, Field)>> = fields(summary)
            .into_iter()
            .map(|(field, value)| match (field, value) {
                (1, Field::Bytes(value)) => fields(&value),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(values.contains(&vec![(1, Field::Bytes(b"train_loss".to_vec())), (2, Field::Float(0.25))]));
        assert_eq!(events[2][1], (2, Field::Whole(301)));
        let Field::Bytes(summary) = &events[2][2].1 else { panic!("{:?}", events[2]) };
        assert!(summary.windows(11).any(|part| part == b"memory/peak"));
    }
}
