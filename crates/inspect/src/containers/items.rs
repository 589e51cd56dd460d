//! The elements of a container, found by their numbers.
//!
//! What lies in a row is found at once; links, trees and hash tables have to
//! be walked, but nothing is read of what is only passed: one small read for a
//! node, one for four thousand places of a hash table. Trees are walked from
//! the nearer end.

use std::ops::Range;

use protocol::id::Addr;

use crate::error::{Error, Result};
use crate::target::{Process, read_exact, read_pointer};
use crate::types::Ty;
use crate::value::Value;

/// An element, with its key if the container is a map.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// What it is found by.
    pub key: Option<Value>,
    /// What it is.
    pub value: Value,
}

/// What a node of a linked container holds, and where in it.
#[derive(Debug, Clone)]
pub(crate) struct NodeLayout {
    /// Bytes before the element.
    pub skip: u64,
    /// The element, or the key of a map.
    pub element: Ty,
    /// What a map's key leads to, and where it is behind the key's start.
    pub mapped: Option<(Ty, u64)>,
}

impl NodeLayout {
    fn at(&self, node: Addr) -> Entry {
        let place = node.plus(self.skip);
        let element = Value::in_memory(self.element.clone(), place);
        match &self.mapped {
            Some((ty, offset)) => Entry {
                key: Some(element),
                value: Value::in_memory(ty.clone(), place.plus(*offset)),
            },
            None => Entry {
                key: None,
                value: element,
            },
        }
    }
}

/// Where the fields of a B-tree's node are.
#[derive(Debug, Clone)]
pub(crate) struct BTreeLayout {
    /// The key.
    pub key: Ty,
    /// What a key leads to; sets have none.
    pub mapped: Option<Ty>,
    /// The number of keys in the node: two bytes.
    pub len: u64,
    /// The keys.
    pub keys: u64,
    /// What they lead to.
    pub values: u64,
    /// The children, behind what all nodes have.
    pub edges: u64,
}

/// How the elements of a container are arranged.
#[derive(Debug, Clone)]
pub(crate) enum Arrangement {
    /// One behind the other.
    Row {
        /// Of this type.
        element: Ty,
        /// The first one's address.
        start: Addr,
    },
    /// One behind the other, and from the end back to the beginning.
    Ring {
        /// Of this type.
        element: Ty,
        /// The buffer's address.
        start: Addr,
        /// The place of the first.
        head: u64,
        /// The number of places.
        capacity: u64,
    },
    /// In blocks of equal size, with a table of the blocks.
    Blocks {
        /// Of this type.
        element: Ty,
        /// The address of the first block's address.
        table: Addr,
        /// The place of the first in the first block.
        offset: u64,
        /// Places in a block.
        per_block: u64,
    },
    /// Nodes that begin with the next one's address.
    Linked {
        /// What they hold.
        node: NodeLayout,
        /// The first.
        first: Addr,
    },
    /// A binary tree: colour, parent, left, right.
    SearchTree {
        /// What its nodes hold.
        node: NodeLayout,
        /// The root.
        root: Addr,
    },
    /// A hash table of hashbrown: a byte for each place, and before these
    /// bytes the places, last first.
    Buckets {
        /// A pair of key and value.
        pair: Ty,
        /// The first byte's address.
        control: Addr,
        /// The number of places, less one.
        mask: u64,
        /// Whether there are only keys.
        set: bool,
    },
    /// A B-tree.
    BTree {
        /// Its nodes.
        layout: BTreeLayout,
        /// The root.
        root: Addr,
        /// The levels below it.
        height: u64,
    },
}

/// The elements of a container.
#[derive(Debug, Clone)]
pub(crate) struct Items {
    /// How many there are, as the container says.
    pub count: u64,
    /// Where they are.
    pub arrangement: Arrangement,
}

/// No search tree of 64-bit addresses is deeper.
const DEEPEST: usize = 128;
/// Bytes of a hash table that are read at once.
const CHUNK: usize = 4096;

impl Items {
    /// Whether any element is found without walking.
    pub(crate) fn is_indexed(&self) -> bool {
        matches!(
            self.arrangement,
            Arrangement::Row { .. } | Arrangement::Ring { .. } | Arrangement::Blocks { .. }
        )
    }

    /// Elements with these numbers; fewer if the container says that it has
    /// more than can be found.
    pub(crate) fn range(&self, process: &dyn Process, range: Range<u64>) -> Result<Vec<Entry>> {
        let range = range.start.min(self.count)..range.end.min(self.count);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        match &self.arrangement {
            Arrangement::Row { .. } | Arrangement::Ring { .. } | Arrangement::Blocks { .. } => {
                range.map(|index| self.indexed(process, index)).collect()
            }
            Arrangement::Linked { node, first } => linked(process, node, *first, range),
            Arrangement::SearchTree { node, root } => {
                self.walk_nearer_end(range, |range, order, found| {
                    search_tree(process, *root, range, order, &mut |at| {
                        found.push(node.at(at))
                    })
                })
            }
            Arrangement::Buckets {
                pair,
                control,
                mask,
                set,
            } => buckets(process, pair, *control, *mask, *set, range),
            Arrangement::BTree {
                layout,
                root,
                height,
            } => self.walk_nearer_end(range, |range, order, found| {
                let mut walk = BTreeWalk {
                    process,
                    layout,
                    order,
                    range,
                    passed: 0,
                    found,
                };
                walk.node(*root, (*height).min(24))
            }),
        }
    }

    /// One of the elements that are found without walking.
    pub(crate) fn indexed(&self, process: &dyn Process, index: u64) -> Result<Entry> {
        let place = |element: &Ty, start: Addr, at: u64| {
            let size = element.size_of().unwrap_or(0);
            Value::in_memory(element.clone(), start.plus(at.wrapping_mul(size)))
        };
        let value = match &self.arrangement {
            Arrangement::Row { element, start } => place(element, *start, index),
            Arrangement::Ring {
                element,
                start,
                head,
                capacity,
            } => place(
                element,
                *start,
                head.wrapping_add(index) % (*capacity).max(1),
            ),
            Arrangement::Blocks {
                element,
                table,
                offset,
                per_block,
            } => {
                let (at, per_block) = (index.wrapping_add(*offset), (*per_block).max(1));
                let slot = table.plus((at / per_block).wrapping_mul(8));
                let block = read_pointer(process, slot)?;
                place(element, block, at % per_block)
            }
            _ => return Err(Error::other("the elements are found by walking only")),
        };
        Ok(Entry { key: None, value })
    }

    /// Walks forwards, or backwards where that is shorter.
    fn walk_nearer_end(
        &self,
        range: Range<u64>,
        walk: impl FnOnce(Range<u64>, Order, &mut Vec<Entry>) -> Result<()>,
    ) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let behind = self.count - range.end;
        if range.start <= behind {
            walk(range, Order::Forwards, &mut found)?;
        } else {
            let mirrored = behind..self.count - range.start;
            walk(mirrored, Order::Backwards, &mut found)?;
            found.reverse();
        }
        Ok(found)
    }
}

/// Which way a tree is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Forwards,
    Backwards,
}

fn linked(
    process: &dyn Process,
    node: &NodeLayout,
    first: Addr,
    range: Range<u64>,
) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    let mut at = first;
    for index in 0..range.end {
        if at.is_null() {
            break;
        }
        if index >= range.start {
            found.push(node.at(at));
        }
        if index + 1 < range.end {
            at = read_pointer(process, at)?;
        }
    }
    Ok(found)
}

/// Visits the nodes with these numbers in order: what is before the node, the
/// node, what is behind it.
fn search_tree(
    process: &dyn Process,
    root: Addr,
    range: Range<u64>,
    order: Order,
    visit: &mut dyn FnMut(Addr),
) -> Result<()> {
    let mut waiting: Vec<(Addr, Addr)> = Vec::new();
    let mut at = root;
    let mut passed = 0;
    while passed < range.end {
        while !at.is_null() {
            let mut links = [0; 16];
            read_exact(process, at.plus(16), &mut links)?;
            let (left, right) = links.split_at(8);
            let word = |bytes: &[u8]| Addr(crate::value::integer_from(bytes, false) as u64);
            let (before, behind) = match order {
                Order::Forwards => (word(left), word(right)),
                Order::Backwards => (word(right), word(left)),
            };
            waiting.push((at, behind));
            if waiting.len() > DEEPEST {
                return Err(Error::other("the tree has no end"));
            }
            at = before;
        }
        let Some((node, behind)) = waiting.pop() else {
            break;
        };
        if passed >= range.start {
            visit(node);
        }
        passed += 1;
        at = behind;
    }
    Ok(())
}

fn buckets(
    process: &dyn Process,
    pair: &Ty,
    control: Addr,
    mask: u64,
    set: bool,
    range: Range<u64>,
) -> Result<Vec<Entry>> {
    let size = pair.size_of().unwrap_or(0);
    let mut found = Vec::new();
    let mut passed = 0;
    let mut at = 0u64;
    let mut bytes = [0; CHUNK];
    while at <= mask {
        let wanted = (mask - at + 1).min(CHUNK as u64) as usize;
        let Some(chunk) = bytes.get_mut(..wanted) else {
            break;
        };
        let read = process.read(control.plus(at), chunk);
        for (index, byte) in (at..).zip(chunk.iter().take(read)) {
            // The top bit marks an empty place.
            if byte & 0x80 != 0 {
                continue;
            }
            if passed >= range.start {
                let place = control.minus((index + 1).wrapping_mul(size));
                let pair = Value::in_memory(pair.clone(), place);
                let part = |name| {
                    let part = pair.field(process, name);
                    part.ok_or_else(|| Error::other("the places of the table hold no pairs"))
                };
                found.push(if set {
                    Entry {
                        key: None,
                        value: part("__0")?,
                    }
                } else {
                    Entry {
                        key: Some(part("__0")?),
                        value: part("__1")?,
                    }
                });
            }
            passed += 1;
            if passed >= range.end {
                return Ok(found);
            }
        }
        if read < wanted {
            break;
        }
        at += wanted as u64;
    }
    Ok(found)
}

/// A walk through a B-tree that passes whole leaves.
struct BTreeWalk<'a> {
    process: &'a dyn Process,
    layout: &'a BTreeLayout,
    order: Order,
    range: Range<u64>,
    passed: u64,
    found: &'a mut Vec<Entry>,
}

impl BTreeWalk<'_> {
    fn node(&mut self, node: Addr, height: u64) -> Result<()> {
        let mut bytes = [0; 2];
        read_exact(self.process, node.plus(self.layout.len), &mut bytes)?;
        // A node has at most eleven keys.
        let count = u64::from(u16::from_le_bytes(bytes).min(11));
        if height == 0 && self.passed + count <= self.range.start {
            self.passed += count;
            return Ok(());
        }
        for step in 0..=count {
            if self.passed >= self.range.end {
                break;
            }
            let (edge, key) = match self.order {
                Order::Forwards => (step, Some(step).filter(|k| *k < count)),
                Order::Backwards => (count - step, (count - step).checked_sub(1)),
            };
            if height > 0 {
                let edges = node.plus(self.layout.edges);
                let child = read_pointer(self.process, edges.plus(edge * 8))?;
                self.node(child, height - 1)?;
            }
            if let Some(key) = key {
                self.take(node, key);
            }
        }
        Ok(())
    }

    fn take(&mut self, node: Addr, at: u64) {
        if self.range.contains(&self.passed) {
            let part = |ty: &Ty, offset: u64| {
                let size = ty.size_of().unwrap_or(0);
                let place = node.plus(offset).plus(at.wrapping_mul(size));
                Value::in_memory(ty.clone(), place)
            };
            let key = part(&self.layout.key, self.layout.keys);
            self.found.push(match &self.layout.mapped {
                Some(mapped) => Entry {
                    key: Some(key),
                    value: part(mapped, self.layout.values),
                },
                None => Entry {
                    key: None,
                    value: key,
                },
            });
        }
        self.passed += 1;
    }
}
