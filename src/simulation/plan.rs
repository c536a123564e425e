//! A scenario file made sense of: who is who, what the links are like, what happens when.

use super::file::{EngineKeys, FaultKeys, FaultKind, File, LinkKeys, PatternKind, TrafficKeys};
use crate::ports::sim::LinkModel;
use crate::time::{MILLIS, Nanos};
use std::collections::BTreeMap;

/// A whole scenario, checked. Made by [`Plan::parse`], played by [`super::run_plan`].
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the scenario is about, for people.
    pub title: String,
    /// Of everything that is drawn by chance.
    pub seed: u64,
    /// How many processes the job has.
    pub peers: u32,
    pub(super) limit_ns: Nanos,
    pub(super) engine: EngineKeys,
    /// Of all pairs without a model of their own.
    pub(super) link: LinkModel,
    pub(super) links: Vec<(Scope, LinkKeys)>,
    /// In the order of the file.
    pub(super) faults: Vec<Fault>,
    pub(super) traffic: Vec<Traffic>,
}

/// Ordered pairs of nodes: from any of `from` to any of `to`, and back if `both_ways`.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub from: Vec<u32>,
    pub to: Vec<u32>,
    pub both_ways: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub at: Nanos,
    pub what: FaultAction,
}

#[derive(Clone, Debug)]
pub(super) enum FaultAction {
    /// `None`: the model of all pairs without one of their own.
    Link(Option<Scope>, Box<LinkKeys>),
    Cut(Scope, bool),
    Down(Vec<u32>, bool),
    Pause(Vec<u32>, bool),
    Restart(Vec<u32>, Nanos),
}

/// One item of traffic.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub name: String,
    pub start_ns: Nanos,
    /// No message is handed over later than this after the start.
    pub duration_ns: Option<Nanos>,
    pub message_bytes: u32,
    pub outstanding: u32,
    pub pattern: Pattern,
}

#[derive(Clone, Debug)]
pub(super) enum Pattern {
    /// `bytes` from each first to its second one; without end if there is a duration.
    Stream { pairs: Vec<(u32, u32)>, bytes: Option<u64> },
    /// There and back, so often.
    PingPong { pairs: Vec<(u32, u32)>, rounds: u32 },
    /// `to` asks all of `from`, each answers with so many bytes.
    Incast { from: Vec<u32>, to: u32, rounds: u32, bytes: u64 },
    /// A message from each to each other.
    AllToAll { nodes: Vec<u32>, rounds: u32 },
    /// Messages between pairs drawn by chance, at times drawn by chance.
    Random { nodes: Vec<u32>, per_second: f64, messages: u64 },
}

impl Traffic {
    pub fn is_stream(&self) -> bool {
        matches!(self.pattern, Pattern::Stream { .. })
    }
}

impl Plan {
    /// Reads a scenario file (`docs/simulate.md`). The error names the key, and its line where
    /// that is known.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        // More would not fit in any machine's memory.
        if !(2..=1 << 24).contains(&file.peers) {
            return Err(format!("peers = {}: must be 2 to {}", file.peers, 1 << 24));
        }
        let names = Names { peers: file.peers, groups: &file.groups };
        for group in file.groups.keys() {
            names.nodes(&format!("groups.{group}"), group)?;
        }
        let mut link = LinkModel::default();
        apply("link", &file.link, &mut link)?;
        let mut links = Vec::new();
        for (i, keys) in file.links.iter().enumerate() {
            let place = format!("links[{i}]");
            apply(&format!("{place}.set"), &keys.set, &mut link.clone())?;
            links.push((names.scope(&place, &keys.from, &keys.to, keys.both_ways)?, keys.set));
        }
        let faults = file.faults.iter().enumerate();
        let faults = faults.map(|(i, keys)| fault(&names, &format!("faults[{i}]"), keys));
        let faults = faults.collect::<Result<Vec<_>, _>>()?;
        let traffic = file.traffic.iter().enumerate();
        let traffic = traffic.map(|(i, keys)| item(&names, &format!("traffic[{i}]"), keys));
        let traffic = traffic.collect::<Result<Vec<_>, _>>()?;
        if traffic.is_empty() {
            return Err("traffic: there is none".into());
        }
        let plan = Self {
            title: file.title,
            seed: file.seed,
            peers: file.peers,
            limit_ns: file.limit.0,
            engine: file.engine,
            link,
            links,
            faults,
            traffic,
        };
        plan.check_checksum()?;
        Ok(plan)
    }

    /// Without a checksum a flipped bit is delivered: no fault of the engine's.
    fn check_checksum(&self) -> Result<(), String> {
        let set = self.faults.iter().filter_map(|fault| match &fault.what {
            FaultAction::Link(_, set) => Some(&**set),
            _ => None,
        });
        let set = self.links.iter().map(|(_, set)| set).chain(set);
        let corrupts = self.link.corrupt > 0.0 || set.into_iter().any(LinkKeys::corrupts);
        if corrupts && self.engine.checksum != Some(true) {
            return Err("a link has `corrupt`: that needs `checksum = true` in [engine]".into());
        }
        Ok(())
    }
}

fn apply(place: &str, keys: &LinkKeys, model: &mut LinkModel) -> Result<(), String> {
    keys.apply(model).map_err(|key| format!("{place}.{key}: more than 100 %"))
}

/// Who can be named.
struct Names<'a> {
    peers: u32,
    groups: &'a BTreeMap<String, String>,
}

impl Names<'_> {
    /// The nodes of `"3"`, `"0..4"` (0 to 3), a group, or several of these with commas between.
    fn nodes(&self, place: &str, text: &str) -> Result<Vec<u32>, String> {
        let mut nodes = Vec::new();
        for part in text.split(',').map(str::trim) {
            match self.groups.get(part) {
                Some(group) => {
                    for part in group.split(',').map(str::trim) {
                        nodes.extend(self.range(place, part)?);
                    }
                }
                None => nodes.extend(self.range(place, part)?),
            }
        }
        let mut sorted = nodes.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{place} = {text:?}: peer {} is named twice", twice[0]));
        }
        Ok(nodes)
    }

    fn range(&self, place: &str, text: &str) -> Result<std::ops::Range<u32>, String> {
        let wrong = || format!("{place}: {text:?} is no peer (3), range (0..4) or group");
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let range = match text.split_once("..") {
            Some((first, end)) => number(first)?..number(end)?,
            None => {
                let first = number(text)?;
                first..first.saturating_add(1)
            }
        };
        if range.is_empty() {
            return Err(format!("{place}: {text:?} is an empty range"));
        }
        if range.end > self.peers {
            return Err(format!("{place}: {text:?}, but peers are 0 to {}", self.peers - 1));
        }
        Ok(range)
    }

    fn scope(&self, place: &str, from: &str, to: &str, both_ways: bool) -> Result<Scope, String> {
        let from = self.nodes(&format!("{place}.from"), from)?;
        let to = self.nodes(&format!("{place}.to"), to)?;
        Ok(Scope { from, to, both_ways })
    }
}

/// Keys that go with a kind are there, and no others.
fn expect(place: &str, kind: &str, keys: &[(&str, bool, Need)]) -> Result<(), String> {
    for (key, is_there, need) in keys {
        match (is_there, need) {
            (false, Need::Yes) => return Err(format!("{place}: {kind} needs the key `{key}`")),
            (true, Need::No) => return Err(format!("{place}: `{key}` does not go with {kind}")),
            _ => {}
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Yes,
    May,
    No,
}

impl Need {
    fn yes_if(is_needed: bool) -> Self {
        if is_needed { Self::Yes } else { Self::No }
    }

    fn may_if(is_possible: bool) -> Self {
        if is_possible { Self::May } else { Self::No }
    }
}

fn fault(names: &Names<'_>, place: &str, keys: &FaultKeys) -> Result<Fault, String> {
    use FaultKind::{Cut, Down, Link, Mend, Pause, Restart, Resume, Up};
    let what = keys.what;
    let is_link = what == Link;
    // A link without a scope is everybody's.
    let has_scope =
        matches!(what, Cut | Mend) || is_link && (keys.from.is_some() || keys.to.is_some());
    expect(
        place,
        &format!("what = \"{}\"", format!("{what:?}").to_lowercase()),
        &[
            ("from", keys.from.is_some(), Need::yes_if(has_scope)),
            ("to", keys.to.is_some(), Need::yes_if(has_scope)),
            ("both_ways", keys.both_ways.is_some(), Need::may_if(has_scope)),
            ("nodes", keys.nodes.is_some(), Need::yes_if(!is_link && !has_scope)),
            ("set", keys.set.is_some(), Need::yes_if(is_link)),
            ("outage", keys.outage.is_some(), Need::may_if(what == Restart)),
        ],
    )?;
    let scope = match (&keys.from, &keys.to) {
        (Some(from), Some(to)) => {
            Some(names.scope(place, from, to, keys.both_ways.unwrap_or(false))?)
        }
        _ => None,
    };
    let nodes = match &keys.nodes {
        Some(nodes) => names.nodes(&format!("{place}.nodes"), nodes)?,
        None => Vec::new(),
    };
    let set = keys.set.unwrap_or_default();
    apply(&format!("{place}.set"), &set, &mut LinkModel::default())?;
    let outage_ns = keys.outage.map_or(10 * MILLIS, |outage| outage.0);
    let what = match (what, scope) {
        (Link, scope) => FaultAction::Link(scope, Box::new(set)),
        (Cut | Mend, Some(scope)) => FaultAction::Cut(scope, what == Cut),
        (Down | Up, _) => FaultAction::Down(nodes, what == Down),
        (Pause | Resume, _) => FaultAction::Pause(nodes, what == Pause),
        (Restart, _) => FaultAction::Restart(nodes, outage_ns),
        (Cut | Mend, None) => return Err(format!("{place}: between whom?")),
    };
    Ok(Fault { at: keys.at.0, what })
}

fn item(names: &Names<'_>, place: &str, keys: &TrafficKeys) -> Result<Traffic, String> {
    use PatternKind::{Alltoall, Incast, Pingpong, Random, Stream};
    let kind = keys.pattern;
    let name = format!("{kind:?}").to_lowercase();
    let is = |kinds: &[PatternKind]| kinds.contains(&kind);
    expect(
        place,
        &format!("pattern = \"{name}\""),
        &[
            ("from", keys.from.is_some(), Need::yes_if(is(&[Stream, Pingpong, Incast]))),
            ("to", keys.to.is_some(), Need::yes_if(is(&[Stream, Pingpong, Incast]))),
            ("nodes", keys.nodes.is_some(), Need::yes_if(is(&[Alltoall, Random]))),
            (
                "bytes",
                keys.bytes.is_some(),
                match kind {
                    Stream if keys.duration.is_some() => Need::May,
                    _ => Need::yes_if(is(&[Stream, Incast])),
                },
            ),
            ("rounds", keys.rounds.is_some(), Need::may_if(is(&[Pingpong, Incast, Alltoall]))),
            ("messages", keys.messages.is_some(), Need::yes_if(is(&[Random]))),
            ("per_second", keys.per_second.is_some(), Need::yes_if(is(&[Random]))),
            ("duration", keys.duration.is_some(), Need::may_if(is(&[Stream]))),
            ("outstanding", keys.outstanding.is_some(), Need::may_if(is(&[Stream, Incast]))),
        ],
    )?;
    let message = keys.message.0;
    if !(1..=1 << 30).contains(&message) {
        return Err(format!("{place}.message: must be 1 B to 1 GiB"));
    }
    // Enough to keep the engine busy, and a bound for memory.
    let outstanding = (1u64 << 20).div_ceil(message).clamp(2, 1024) as u32;
    let positive = [
        ("rounds", keys.rounds.map(u64::from)),
        ("messages", keys.messages),
        ("bytes", keys.bytes.map(|bytes| bytes.0)),
        ("outstanding", keys.outstanding.map(u64::from)),
    ];
    if let Some((key, _)) = positive.iter().find(|(_, value)| *value == Some(0)) {
        return Err(format!("{place}.{key}: must be at least 1"));
    }
    Ok(Traffic {
        name: keys.name.clone().unwrap_or(name),
        start_ns: keys.start.map_or(0, |start| start.0),
        duration_ns: keys.duration.map(|duration| duration.0),
        message_bytes: message as u32,
        outstanding: keys.outstanding.unwrap_or(outstanding),
        pattern: pattern(names, place, keys)?,
    })
}

fn pattern(names: &Names<'_>, place: &str, keys: &TrafficKeys) -> Result<Pattern, String> {
    let list = |key: &str, text: &Option<String>| match text {
        Some(text) => names.nodes(&format!("{place}.{key}"), text),
        None => Ok(Vec::new()),
    };
    let (from, to) = (list("from", &keys.from)?, list("to", &keys.to)?);
    let nodes = list("nodes", &keys.nodes)?;
    let rounds = keys.rounds.unwrap_or(1);
    let bytes = keys.bytes.map(|bytes| bytes.0);
    Ok(match keys.pattern {
        PatternKind::Stream => Pattern::Stream { pairs: pair_up(place, from, to)?, bytes },
        PatternKind::Pingpong => Pattern::PingPong { pairs: pair_up(place, from, to)?, rounds },
        PatternKind::Incast => {
            let &[to] = to.as_slice() else {
                return Err(format!("{place}.to: an incast goes to one peer"));
            };
            if from.contains(&to) {
                return Err(format!("{place}.to: peer {to} is among the senders"));
            }
            Pattern::Incast { from, to, rounds, bytes: bytes.unwrap_or(0) }
        }
        PatternKind::Alltoall | PatternKind::Random if nodes.len() < 2 => {
            return Err(format!("{place}.nodes: at least two peers are needed"));
        }
        PatternKind::Alltoall => Pattern::AllToAll { nodes, rounds },
        PatternKind::Random => {
            let per_second = keys.per_second.unwrap_or(0.0);
            if !(per_second > 0.0 && per_second <= 1e9) {
                return Err(format!("{place}.per_second: must be above 0 and at most 1e9"));
            }
            Pattern::Random { nodes, per_second, messages: keys.messages.unwrap_or(0) }
        }
    })
}

/// The first with the first, and so on; one alone goes with each of the others.
fn pair_up(place: &str, from: Vec<u32>, to: Vec<u32>) -> Result<Vec<(u32, u32)>, String> {
    let (senders, receivers) = (from.len(), to.len());
    let count = senders.max(receivers);
    if senders != receivers && senders.min(receivers) != 1 {
        return Err(format!("{place}: {senders} in `from` and {receivers} in `to` make no pairs"));
    }
    let pairs = from.into_iter().cycle().zip(to.into_iter().cycle()).take(count);
    let pairs: Vec<_> = pairs.collect();
    match pairs.iter().find(|(from, to)| from == to) {
        Some((node, _)) => Err(format!("{place}: peer {node} would send to itself")),
        None => Ok(pairs),
    }
}
