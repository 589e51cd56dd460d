//! Covers: tokio on several threads: a TCP echo server and 50 concurrent clients in one process,
//! timers, timeouts, channels, select, blocking work beside it.
//!
//! Hard for a recorder: one epoll and many workers that steal tasks from each other; which worker
//! runs what follows from atomics and wake-ups through an eventfd.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{broadcast, mpsc, oneshot, Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout, Instant};

const CLIENTS: usize = 50;
const MESSAGES: usize = 10;

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> io::Result<()> {
    echo().await?;
    timers().await;
    channels().await;
    udp().await?;
    Ok(())
}

async fn serve(listener: TcpListener, mut stop: oneshot::Receiver<()>) -> io::Result<usize> {
    let mut served = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut stream, _) = accepted?;
                served += 1;
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
            _ = &mut stop => return Ok(served),
        }
    }
}

async fn client(me: usize, address: std::net::SocketAddr) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    let mut total = 0;
    for i in 0..MESSAGES {
        let message = vec![(me + i) as u8; 100 + me * 10];
        stream.write_all(&message).await?;
        let mut answer = vec![0; message.len()];
        stream.read_exact(&mut answer).await?;
        assert_eq!(message, answer);
        total += answer.len();
    }
    stream.shutdown().await?;
    assert_eq!(stream.read(&mut [0; 1]).await?, 0);
    Ok(total)
}

async fn echo() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(serve(listener, stopped));
    let mut clients = JoinSet::new();
    for me in 0..CLIENTS {
        clients.spawn(client(me, address));
    }
    let mut bytes = 0;
    while let Some(done) = clients.join_next().await {
        bytes += done??;
    }
    stop.send(()).expect("the server is still there");
    println!("echo: {} clients, {bytes} bytes", server.await??);
    Ok(())
}

async fn timers() {
    let start = Instant::now();
    let mut sleeps = JoinSet::new();
    for i in 0..20 {
        sleeps.spawn(async move {
            sleep(Duration::from_millis(1 + i % 5)).await;
            i
        });
    }
    let mut sum = 0;
    while let Some(done) = sleeps.join_next().await {
        sum += done.expect("a sleep does not fail");
    }
    let mut ticks = interval(Duration::from_millis(2));
    for _ in 0..5 {
        ticks.tick().await;
    }
    assert!(start.elapsed() >= Duration::from_millis(13));
    let late = timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
    assert!(late.is_err());
    println!("timers: sum {sum}, 5 ticks, 1 timeout");
}

async fn channels() {
    let (sender, mut receiver) = mpsc::channel(4);
    let (shout, _) = broadcast::channel(16);
    let counter = std::sync::Arc::new(Mutex::new(0u64));
    let permits = std::sync::Arc::new(Semaphore::new(2));
    let mut listeners = JoinSet::new();
    for i in 0..10u64 {
        let (sender, mut hear) = (sender.clone(), shout.subscribe());
        let (counter, permits) = (counter.clone(), permits.clone());
        listeners.spawn(async move {
            let said: u64 = hear.recv().await.expect("somebody shouts");
            let _permit = permits.acquire().await.expect("never closed");
            *counter.lock().await += said;
            let computed = tokio::task::spawn_blocking(move || (0..=i * 1000).sum::<u64>()).await;
            sender
                .send(computed.expect("it does not panic"))
                .await
                .expect("main listens");
        });
    }
    drop(sender);
    shout.send(7).expect("ten listeners");
    let mut sum = 0;
    while let Some(part) = receiver.recv().await {
        sum += part;
    }
    while listeners.join_next().await.is_some() {}
    println!("channels: counted {}, sum {sum}", *counter.lock().await);
}

async fn udp() -> io::Result<()> {
    let one = UdpSocket::bind("127.0.0.1:0").await?;
    let two = UdpSocket::bind("127.0.0.1:0").await?;
    one.connect(two.local_addr()?).await?;
    let mut bytes = 0;
    for i in 0..20u8 {
        let (message, mut buffer) = ([i; 30], [0; 64]);
        let (sent, received) = tokio::join!(one.send(&message), two.recv_from(&mut buffer));
        assert_eq!((sent?, received?.1), (30, one.local_addr()?));
        assert_eq!(buffer[..30], message);
        bytes += 30;
    }
    println!("udp: {bytes} bytes");
    Ok(())
}
