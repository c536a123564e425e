//! Two engines that know each other, on a simulated network without delays.

use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::{Config, EndpointHandle, Engine, JobKey, Rank};

pub fn pair() -> (SimNet, Engine<SimPort>, Engine<SimPort>, EndpointHandle) {
    let net = SimNet::new(1, LinkModel::default());
    let open = |rank| {
        let config = Config::new(Rank(rank), JobKey(1));
        Engine::new(config, net.port(SimPortConfig::default())).unwrap()
    };
    let (mut a, mut b) = (open(0), open(1));
    let to_b = a.add_peer(&b.local_address()).unwrap();
    b.add_peer(&a.local_address()).unwrap();
    (net, a, b, to_b)
}
