//! Structures are shown as strace shows them.

use super::*;

fn show(shape: Shape, bytes: &[u8]) -> String {
    let mut out = String::new();
    decode(shape, bytes, bytes.len() as u64, &Context::default())
        .write(&mut out, &super::super::value::Limits::default());
    out
}

#[test]
fn structures_are_shown_as_strace_shows_them() {
    let mut timespec = 1i64.to_le_bytes().to_vec();
    timespec.extend(500i64.to_le_bytes());
    assert_eq!(show(Shape::Timespec, &timespec), "{tv_sec=1, tv_nsec=500}");
    let twice = [timespec.clone(), timespec].concat();
    assert_eq!(
        show(Shape::Timespec, &twice),
        "[{tv_sec=1, tv_nsec=500}, {tv_sec=1, tv_nsec=500}]"
    );
    let mut stat = vec![0; 144];
    stat[24..28].copy_from_slice(&0o100644u32.to_le_bytes());
    stat[48..56].copy_from_slice(&1234i64.to_le_bytes());
    assert_eq!(
        show(Shape::Stat, &stat),
        "{st_mode=S_IFREG|0644, st_size=1234, ...}"
    );
    stat[24..28].copy_from_slice(&0o020620u32.to_le_bytes());
    stat[40..48].copy_from_slice(&0x8800u64.to_le_bytes());
    assert_eq!(
        show(Shape::Stat, &stat),
        "{st_mode=S_IFCHR|0620, st_rdev=makedev(0x88, 0x0), ...}"
    );
    assert_eq!(
        show(Shape::PollFds, &[3, 0, 0, 0, 1, 0, 1, 0]),
        "[{fd=3, events=POLLIN, revents=POLLIN}]"
    );
    assert_eq!(show(Shape::Sigset, &0x202u64.to_le_bytes()), "[INT USR1]");
    assert_eq!(
        show(Shape::Sigset, &(!0x202u64).to_le_bytes()),
        "~[INT USR1]"
    );
    assert_eq!(show(Shape::FdSet, &[0b1001, 0, 1]), "[0 3 16]");
    assert_eq!(show(Shape::FdPair, &[3, 0, 0, 0, 4, 0, 0, 0]), "[3, 4]");
    let v4 = [2, 0, 0, 80, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        show(Shape::Sockaddr, &v4),
        r#"{sa_family=AF_INET, sin_port=80, sin_addr="10.0.0.1"}"#
    );
    let mut info = vec![0; 128];
    info[0] = 10;
    info[8..12].copy_from_slice(&(-6i32).to_le_bytes());
    info[16] = 77;
    assert_eq!(
        show(Shape::Siginfo, &info),
        "{si_signo=SIGUSR1, si_code=SI_TKILL, si_pid=77, si_uid=0}"
    );
}

#[test]
fn bytes_too_short_for_their_structure_are_shown_as_bytes() {
    let all = [
        Shape::Timespec,
        Shape::Itimerspec,
        Shape::Stat,
        Shape::Statx,
        Shape::Statfs,
        Shape::Sigset,
        Shape::Sigaction,
        Shape::Siginfo,
        Shape::Sigevent,
        Shape::StackT,
        Shape::Rusage,
        Shape::Rlimit,
        Shape::Sysinfo,
        Shape::Utsname,
        Shape::Tms,
        Shape::Sockaddr,
        Shape::EpollEvent,
        Shape::Flock,
        Shape::Dirents64,
        Shape::Termios,
        Shape::Winsize,
        Shape::Ifreq,
        Shape::CloneArgs,
        Shape::OpenHow,
    ];
    for shape in all {
        assert_eq!(show(shape, b"\x02"), "\"\\2\"", "{shape:?}");
        // And any length at all does no harm.
        for len in 0..150 {
            show(shape, &vec![0xff; len]);
            show(shape, &vec![0; len]);
        }
    }
}

#[test]
fn wait_statuses_are_spelled_out() {
    let show = |status: u32| {
        let mut out = String::new();
        wait_status(&status.to_le_bytes())
            .unwrap()
            .write(&mut out, &Default::default());
        out
    };
    assert_eq!(show(0x300), "[{WIFEXITED(s) && WEXITSTATUS(s) == 3}]");
    assert_eq!(
        show(0x89),
        "[{WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL && WCOREDUMP(s)}]"
    );
    assert_eq!(show(0x137f), "[{WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP}]");
}
