//! A wire between a store and a server, on which things go wrong.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What happens to replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Works,
    /// The server gets what is sent, and its replies vanish.
    SwallowsReplies,
    /// The server gets what is sent, and the connection ends when it replies.
    EndsAtReply,
    /// The next reply vanishes, and those after it arrive.
    SwallowsOneReply,
    /// The server gets nothing, and the store this as a reply to whatever it sends.
    Replies(&'static str),
    /// Nothing arrives anywhere.
    Vanishes,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<u16>,
    wire: Mutex<Wire>,
    connections: AtomicUsize,
    closed: AtomicBool,
}

impl Proxy {
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            wire: Mutex::new(Wire::Works),
            connections: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.closed.load(Ordering::SeqCst) {
                    return;
                }
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                accepting.connect(client);
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn set(&self, wire: Wire) {
        *self.shared.wire.lock().unwrap() = wire;
    }

    /// Later connections go to another server.
    pub(crate) fn lead_to(&self, target: u16) {
        *self.shared.target.lock().unwrap() = target;
    }

    /// How many connections were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn connect(self: &Arc<Self>, client: TcpStream) {
        let target = *self.target.lock().unwrap();
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
            let _ = client.shutdown(Shutdown::Both);
            return;
        };
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let (requests, to_client) = (Arc::clone(self), client.try_clone().unwrap());
        thread::spawn(move || requests.pass_requests(from_client, to_server, to_client));
        let replies = Arc::clone(self);
        thread::spawn(move || replies.pass_replies(server, client));
    }

    fn pass_requests(&self, mut from: TcpStream, mut to: TcpStream, mut back: TcpStream) {
        let mut bytes = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            let wire = self.wire.lock().unwrap().clone();
            let sent = match wire {
                Wire::Vanishes => Ok(()),
                Wire::Replies(reply) => back.write_all(reply.as_bytes()),
                _ => to.write_all(&bytes[..length]),
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }

    fn pass_replies(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            let mut wire = self.wire.lock().unwrap();
            let sent = match &*wire {
                Wire::Works | Wire::Replies(_) => to.write_all(&bytes[..length]),
                Wire::SwallowsReplies | Wire::Vanishes => Ok(()),
                Wire::SwallowsOneReply => {
                    *wire = Wire::Works;
                    Ok(())
                }
                Wire::EndsAtReply => break,
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
