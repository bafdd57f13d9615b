//! Machines as network namespaces on one switch, each with a cable that can be pulled.
//!
//! The switch is a namespace too, so the machine's own network stays untouched. Every namespace is named
//! after the test's process and ends with the test. It needs root.

use std::process::{Command, Output};

/// Namespaces that end with it.
pub(crate) struct Net {
    prefix: String,
    /// The first one is the switch.
    names: Vec<String>,
}

impl Net {
    /// A switch, or the reason why there is none.
    pub(crate) fn new(label: &str) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it takes root to make network namespaces".to_owned());
        }
        let mut net = Self {
            prefix: format!("tenure{}{label}", std::process::id()),
            names: Vec::new(),
        };
        let switch = net.add("switch")?;
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "bridge", "up"])?;
        Ok(net)
    }

    fn add(&mut self, label: &str) -> Result<String, String> {
        let name = format!("{}-{label}", self.prefix);
        ip(&["netns", "add", &name])?;
        self.names.push(name.clone());
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        Ok(name)
    }

    fn switch(&self) -> &str {
        &self.names[0]
    }

    /// A machine with this address on the switch, and the number of its cable.
    pub(crate) fn machine(&mut self, label: &str, address: &str) -> Result<Machine, String> {
        let name = self.add(label)?;
        let cable = format!("cable{}", self.names.len());
        let switch = self.switch();
        ip(&[
            "-n", switch, "link", "add", &cable, "type", "veth", "peer", "name", "net", "netns",
            &name,
        ])?;
        ip(&["-n", switch, "link", "set", &cable, "master", "bridge"])?;
        ip(&["-n", switch, "link", "set", &cable, "up"])?;
        let with_mask = format!("{address}/24");
        ip(&["-n", &name, "address", "add", &with_mask, "dev", "net"])?;
        ip(&["-n", &name, "link", "set", "net", "up"])?;
        Ok(Machine {
            name,
            cable,
            switch: switch.to_owned(),
            address: address.to_owned(),
        })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// A machine of this network.
pub(crate) struct Machine {
    name: String,
    cable: String,
    switch: String,
    pub(crate) address: String,
}

impl Machine {
    /// A command on the machine. It becomes the program itself, so its process is the program's.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Pulls the cable: packets in either direction wait or are lost, as with a real one.
    pub(crate) fn unplug(&self) {
        let pulled = ip(&["-n", &self.switch, "link", "set", &self.cable, "down"]);
        pulled.expect("a cable that can be pulled");
    }

    /// Loses each packet to these addresses, as a fault in one direction: they go to a card that nobody has.
    #[allow(dead_code, reason = "the tests of a cluster use it")]
    pub(crate) fn loses(&self, addresses: &[String]) {
        for address in addresses {
            let wrong = ["lladdr", "02:00:5e:00:00:01", "nud", "permanent"];
            self.neighbour("replace", address, &wrong);
        }
    }

    /// Finds the way to these addresses again.
    #[allow(dead_code, reason = "the tests of a cluster use it")]
    pub(crate) fn loses_nothing(&self, addresses: &[String]) {
        for address in addresses {
            self.neighbour("del", address, &[]);
        }
    }

    fn neighbour(&self, change: &str, address: &str, to: &[&str]) {
        let words = ["-n", &self.name, "neigh", change, address, "dev", "net"];
        ip(&[&words[..], to].concat()).expect("a neighbour that can be changed");
    }

    pub(crate) fn plug_in(&self) {
        let plugged = ip(&["-n", &self.switch, "link", "set", &self.cable, "up"]);
        plugged.expect("a cable that can be plugged in");
    }
}

fn ip(arguments: &[&str]) -> Result<Output, String> {
    let output = Command::new("ip").args(arguments).output();
    let output =
        output.map_err(|error| format!("ip, which scripts/install-tools gets: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {said}", arguments.join(" ")))
}
