//! Servers on the loopback interface, and clients for them.
