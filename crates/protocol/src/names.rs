//! Names for numbers: flags and enumerations of system calls, signals, errors.
//!
//! The values are those of x86-64. The tables that the rows of `table.rs`
//! use are reached through [`Arg::Named`](crate::syscall::Arg::Named); the
//! others are for the printer, which knows what lies inside a structure or
//! which option belongs to which level.

use crate::syscall::Names;

macro_rules! names {
    ($($(#[$doc:meta])* $kind:ident($($field:literal)?) $table:ident {
        $($name:ident: $value:literal,)*
    })*) => {
        $($(#[$doc])* pub static $table: Names =
            $kind($($field,)? &[$(($value, stringify!($name)),)*]);)*
    };
}

const fn list(values: &'static [(u64, &'static str)]) -> Names {
    Names {
        bits: false,
        field: 0,
        values,
    }
}

const fn flags(field: u64, values: &'static [(u64, &'static str)]) -> Names {
    Names {
        bits: true,
        field,
        values,
    }
}

names! {
    /// `open` flags; the access mode is a field of two bits.
    flags(3) OPEN {
        O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_SYNC: 0x101000, O_TMPFILE: 0x410000,
        O_CREAT: 0x40, O_EXCL: 0x80, O_NOCTTY: 0x100, O_TRUNC: 0x200, O_APPEND: 0x400,
        O_NONBLOCK: 0x800, O_DSYNC: 0x1000, O_ASYNC: 0x2000, O_DIRECT: 0x4000,
        O_LARGEFILE: 0x8000, O_DIRECTORY: 0x10000, O_NOFOLLOW: 0x20000, O_NOATIME: 0x40000,
        O_CLOEXEC: 0x80000, O_PATH: 0x200000,
    }

    /// `AT_*` flags of the calls that take a directory and a path.
    flags(0) AT {
        AT_SYMLINK_NOFOLLOW: 0x100, AT_SYMLINK_FOLLOW: 0x400, AT_NO_AUTOMOUNT: 0x800,
        AT_EMPTY_PATH: 0x1000, AT_STATX_FORCE_SYNC: 0x2000, AT_STATX_DONT_SYNC: 0x4000,
        AT_RECURSIVE: 0x8000,
    }

    /// `unlinkat` flags (the bit means something else elsewhere).
    flags(0) AT_UNLINK {
        AT_REMOVEDIR: 0x200,
    }

    /// `faccessat2` flags.
    flags(0) AT_ACCESS {
        AT_EACCESS: 0x200, AT_SYMLINK_NOFOLLOW: 0x100, AT_EMPTY_PATH: 0x1000,
    }

    /// `access` modes.
    flags(0) ACCESS {
        R_OK: 4, W_OK: 2, X_OK: 1, F_OK: 0,
    }

    /// `lseek` origins.
    list() SEEK {
        SEEK_SET: 0, SEEK_CUR: 1, SEEK_END: 2, SEEK_DATA: 3, SEEK_HOLE: 4,
    }

    /// `renameat2` flags.
    flags(0) RENAME {
        RENAME_NOREPLACE: 1, RENAME_EXCHANGE: 2, RENAME_WHITEOUT: 4,
    }

    /// `keyctl` operations.
    list() KEYCTL {
        KEYCTL_GET_KEYRING_ID: 0, KEYCTL_JOIN_SESSION_KEYRING: 1, KEYCTL_UPDATE: 2,
        KEYCTL_REVOKE: 3, KEYCTL_CHOWN: 4, KEYCTL_SETPERM: 5, KEYCTL_DESCRIBE: 6,
        KEYCTL_CLEAR: 7, KEYCTL_LINK: 8, KEYCTL_UNLINK: 9, KEYCTL_SEARCH: 10, KEYCTL_READ: 11,
        KEYCTL_INSTANTIATE: 12, KEYCTL_NEGATE: 13, KEYCTL_SET_REQKEY_KEYRING: 14,
        KEYCTL_SET_TIMEOUT: 15, KEYCTL_ASSUME_AUTHORITY: 16, KEYCTL_GET_SECURITY: 17,
        KEYCTL_SESSION_TO_PARENT: 18, KEYCTL_REJECT: 19, KEYCTL_INSTANTIATE_IOV: 20,
        KEYCTL_INVALIDATE: 21, KEYCTL_GET_PERSISTENT: 22, KEYCTL_DH_COMPUTE: 23,
        KEYCTL_PKEY_QUERY: 24, KEYCTL_PKEY_ENCRYPT: 25, KEYCTL_PKEY_DECRYPT: 26,
        KEYCTL_PKEY_SIGN: 27, KEYCTL_PKEY_VERIFY: 28, KEYCTL_RESTRICT_KEYRING: 29,
        KEYCTL_MOVE: 30, KEYCTL_CAPABILITIES: 31, KEYCTL_WATCH_KEY: 32,
    }

    /// `quotactl` commands, of users and of groups.
    list() QUOTA {
        Q_SYNC: 0x80000100, Q_QUOTAON: 0x80000200, Q_QUOTAOFF: 0x80000300, Q_GETFMT: 0x80000400,
        Q_GETINFO: 0x80000500, Q_SETINFO: 0x80000600, Q_GETQUOTA: 0x80000700,
        Q_SETQUOTA: 0x80000800, Q_GETNEXTQUOTA: 0x80000900, Q_XQUOTAON: 0x580100,
        Q_XQUOTAOFF: 0x580200, Q_XGETQUOTA: 0x580300, Q_XSETQLIM: 0x580400,
        Q_XGETQSTAT: 0x580500, Q_XQUOTARM: 0x580600, Q_XQUOTASYNC: 0x580700,
        Q_XGETQSTATV: 0x580800, Q_XGETNEXTQUOTA: 0x580900,
    }

    /// `seccomp` operations.
    list() SECCOMP {
        SECCOMP_SET_MODE_STRICT: 0, SECCOMP_SET_MODE_FILTER: 1, SECCOMP_GET_ACTION_AVAIL: 2,
        SECCOMP_GET_NOTIF_SIZES: 3,
    }

    /// `seccomp` flags.
    flags(0) SECCOMP_FLAGS {
        SECCOMP_FILTER_FLAG_TSYNC: 1, SECCOMP_FILTER_FLAG_LOG: 2,
        SECCOMP_FILTER_FLAG_SPEC_ALLOW: 4, SECCOMP_FILTER_FLAG_NEW_LISTENER: 8,
        SECCOMP_FILTER_FLAG_TSYNC_ESRCH: 16, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: 32,
    }

    /// `preadv2` and `pwritev2` flags.
    flags(0) RWF {
        RWF_HIPRI: 1, RWF_DSYNC: 2, RWF_SYNC: 4, RWF_NOWAIT: 8, RWF_APPEND: 0x10,
        RWF_NOAPPEND: 0x20, RWF_ATOMIC: 0x40, RWF_DONTCACHE: 0x80,
    }

    /// `fallocate` modes.
    flags(0) FALLOC {
        FALLOC_FL_KEEP_SIZE: 1, FALLOC_FL_PUNCH_HOLE: 2, FALLOC_FL_NO_HIDE_STALE: 4,
        FALLOC_FL_COLLAPSE_RANGE: 8, FALLOC_FL_ZERO_RANGE: 0x10,
        FALLOC_FL_INSERT_RANGE: 0x20, FALLOC_FL_UNSHARE_RANGE: 0x40,
    }

    /// `fadvise64` advice.
    list() FADVISE {
        POSIX_FADV_NORMAL: 0, POSIX_FADV_RANDOM: 1, POSIX_FADV_SEQUENTIAL: 2,
        POSIX_FADV_WILLNEED: 3, POSIX_FADV_DONTNEED: 4, POSIX_FADV_NOREUSE: 5,
    }

    /// `sync_file_range` flags.
    flags(0) SYNC_RANGE {
        SYNC_FILE_RANGE_WAIT_BEFORE: 1, SYNC_FILE_RANGE_WRITE: 2,
        SYNC_FILE_RANGE_WAIT_AFTER: 4,
    }

    /// `flock` operations.
    flags(0) FLOCK {
        LOCK_SH: 1, LOCK_EX: 2, LOCK_UN: 8, LOCK_NB: 4,
    }

    /// `fcntl` commands.
    list() FCNTL {
        F_DUPFD: 0, F_GETFD: 1, F_SETFD: 2, F_GETFL: 3, F_SETFL: 4, F_GETLK: 5, F_SETLK: 6,
        F_SETLKW: 7, F_SETOWN: 8, F_GETOWN: 9, F_SETSIG: 10, F_GETSIG: 11, F_SETOWN_EX: 15,
        F_GETOWN_EX: 16, F_GETOWNER_UIDS: 17, F_OFD_GETLK: 36, F_OFD_SETLK: 37,
        F_OFD_SETLKW: 38, F_SETLEASE: 1024, F_GETLEASE: 1025, F_NOTIFY: 1026,
        F_DUPFD_QUERY: 1027, F_CREATED_QUERY: 1028, F_CANCELLK: 1029, F_DUPFD_CLOEXEC: 1030,
        F_SETPIPE_SZ: 1031, F_GETPIPE_SZ: 1032, F_ADD_SEALS: 1033, F_GET_SEALS: 1034,
        F_GET_RW_HINT: 1035, F_SET_RW_HINT: 1036, F_GET_FILE_RW_HINT: 1037,
        F_SET_FILE_RW_HINT: 1038, F_GETDELEG: 1039, F_SETDELEG: 1040,
    }

    /// `close_range` flags.
    flags(0) CLOSE_RANGE {
        CLOSE_RANGE_UNSHARE: 2, CLOSE_RANGE_CLOEXEC: 4,
    }

    /// `setxattr` flags.
    flags(0) XATTR {
        XATTR_CREATE: 1, XATTR_REPLACE: 2,
    }

    /// `statx` mask.
    flags(0) STATX {
        STATX_ALL: 0xfff, STATX_BASIC_STATS: 0x7ff, STATX_TYPE: 1, STATX_MODE: 2,
        STATX_NLINK: 4, STATX_UID: 8, STATX_GID: 0x10, STATX_ATIME: 0x20, STATX_MTIME: 0x40,
        STATX_CTIME: 0x80, STATX_INO: 0x100, STATX_SIZE: 0x200, STATX_BLOCKS: 0x400,
        STATX_BTIME: 0x800, STATX_MNT_ID: 0x1000, STATX_DIOALIGN: 0x2000,
        STATX_MNT_ID_UNIQUE: 0x4000, STATX_SUBVOL: 0x8000, STATX_WRITE_ATOMIC: 0x10000,
        STATX_DIO_READ_ALIGN: 0x20000,
    }

    /// `mount` flags.
    flags(0) MOUNT {
        MS_RDONLY: 1, MS_NOSUID: 2, MS_NODEV: 4, MS_NOEXEC: 8, MS_SYNCHRONOUS: 0x10,
        MS_REMOUNT: 0x20, MS_MANDLOCK: 0x40, MS_DIRSYNC: 0x80, MS_NOATIME: 0x400,
        MS_NODIRATIME: 0x800, MS_BIND: 0x1000, MS_MOVE: 0x2000, MS_REC: 0x4000,
        MS_SILENT: 0x8000, MS_UNBINDABLE: 0x20000, MS_PRIVATE: 0x40000, MS_SLAVE: 0x80000,
        MS_SHARED: 0x100000, MS_RELATIME: 0x200000, MS_STRICTATIME: 0x1000000,
        MS_LAZYTIME: 0x2000000,
    }

    /// `umount2` flags.
    flags(0) UMOUNT {
        MNT_FORCE: 1, MNT_DETACH: 2, MNT_EXPIRE: 4, UMOUNT_NOFOLLOW: 8,
    }

    /// The common `ioctl` requests: terminals, descriptors, interfaces.
    list() IOCTL {
        TCGETS: 0x5401, TCSETS: 0x5402, TCSETSW: 0x5403, TCSETSF: 0x5404, TCGETA: 0x5405,
        TCSETA: 0x5406, TCSETAW: 0x5407, TCSETAF: 0x5408, TCSBRK: 0x5409, TCXONC: 0x540a,
        TCFLSH: 0x540b, TIOCEXCL: 0x540c, TIOCNXCL: 0x540d, TIOCSCTTY: 0x540e,
        TIOCGPGRP: 0x540f, TIOCSPGRP: 0x5410, TIOCOUTQ: 0x5411, TIOCSTI: 0x5412,
        TIOCGWINSZ: 0x5413, TIOCSWINSZ: 0x5414, TIOCMGET: 0x5415, TIOCMBIS: 0x5416,
        TIOCMBIC: 0x5417, TIOCMSET: 0x5418, FIONREAD: 0x541b, TIOCCONS: 0x541d,
        TIOCPKT: 0x5420, FIONBIO: 0x5421, TIOCNOTTY: 0x5422, TIOCSETD: 0x5423,
        TIOCGETD: 0x5424, TCSBRKP: 0x5425, TIOCSBRK: 0x5427, TIOCCBRK: 0x5428,
        TIOCGSID: 0x5429, TCGETS2: 0x802c542a, TCSETS2: 0x402c542b, TCSETSW2: 0x402c542c,
        TCSETSF2: 0x402c542d, TIOCGPTN: 0x80045430, TIOCSPTLCK: 0x40045431,
        TIOCGDEV: 0x80045432, TIOCVHANGUP: 0x5437, TIOCGPKT: 0x80045438,
        TIOCGPTLCK: 0x80045439, TIOCGEXCL: 0x80045440, TIOCGPTPEER: 0x5441,
        FIONCLEX: 0x5450, FIOCLEX: 0x5451, FIOASYNC: 0x5452, FIOQSIZE: 0x5460,
        FIOGETOWN: 0x8903, FIOSETOWN: 0x8901, SIOCSPGRP: 0x8902, SIOCGPGRP: 0x8904,
        SIOCATMARK: 0x8905, SIOCGSTAMP: 0x8906, SIOCGSTAMPNS: 0x8907, SIOCADDRT: 0x890b,
        SIOCDELRT: 0x890c, SIOCGIFNAME: 0x8910, SIOCGIFCONF: 0x8912, SIOCGIFFLAGS: 0x8913,
        SIOCSIFFLAGS: 0x8914, SIOCGIFADDR: 0x8915, SIOCSIFADDR: 0x8916,
        SIOCGIFDSTADDR: 0x8917, SIOCSIFDSTADDR: 0x8918, SIOCGIFBRDADDR: 0x8919,
        SIOCSIFBRDADDR: 0x891a, SIOCGIFNETMASK: 0x891b, SIOCSIFNETMASK: 0x891c,
        SIOCGIFMETRIC: 0x891d, SIOCSIFMETRIC: 0x891e, SIOCGIFMTU: 0x8921,
        SIOCSIFMTU: 0x8922, SIOCSIFNAME: 0x8923, SIOCSIFHWADDR: 0x8924,
        SIOCGIFHWADDR: 0x8927, SIOCADDMULTI: 0x8931, SIOCDELMULTI: 0x8932,
        SIOCGIFINDEX: 0x8933, SIOCGIFBR: 0x8940, SIOCSIFBR: 0x8941, SIOCGIFTXQLEN: 0x8942,
        SIOCSIFTXQLEN: 0x8943, SIOCETHTOOL: 0x8946, SIOCOUTQNSD: 0x894b, SIOCGSKNS: 0x894c,
        SIOCDARP: 0x8953, SIOCGARP: 0x8954, SIOCSARP: 0x8955, SIOCGIFMAP: 0x8970,
        FIFREEZE: 0xc0045877, FITHAW: 0xc0045878, FITRIM: 0xc0185879, FICLONE: 0x40049409,
        FICLONERANGE: 0x4020940d, FIDEDUPERANGE: 0xc0189436, FS_IOC_FIEMAP: 0xc020660b,
        FIBMAP: 1, FIGETBSZ: 2, FS_IOC_GETFLAGS: 0x80086601, FS_IOC_SETFLAGS: 0x40086602,
        FS_IOC_GETVERSION: 0x80087601, FS_IOC_FSGETXATTR: 0x801c581f,
        FS_IOC_FSSETXATTR: 0x401c5820, BLKGETSIZE: 0x1260, BLKSSZGET: 0x1268,
        BLKGETSIZE64: 0x80081272, BLKROGET: 0x125e, NS_GET_USERNS: 0xb701,
        NS_GET_PARENT: 0xb702, NS_GET_NSTYPE: 0xb703, NS_GET_OWNER_UID: 0xb704,
        RNDGETENTCNT: 0x80045200, TUNSETIFF: 0x400454ca,
    }

    /// `poll` events.
    flags(0) POLL {
        POLLIN: 1, POLLPRI: 2, POLLOUT: 4, POLLERR: 8, POLLHUP: 0x10, POLLNVAL: 0x20,
        POLLRDNORM: 0x40, POLLRDBAND: 0x80, POLLWRNORM: 0x100, POLLWRBAND: 0x200,
        POLLMSG: 0x400, POLLRDHUP: 0x2000,
    }

    /// `epoll_ctl` operations.
    list() EPOLL_OP {
        EPOLL_CTL_ADD: 1, EPOLL_CTL_DEL: 2, EPOLL_CTL_MOD: 3,
    }

    /// `epoll` events.
    flags(0) EPOLL_EVENT {
        EPOLLIN: 1, EPOLLPRI: 2, EPOLLOUT: 4, EPOLLERR: 8, EPOLLHUP: 0x10, EPOLLNVAL: 0x20,
        EPOLLRDNORM: 0x40, EPOLLRDBAND: 0x80, EPOLLWRNORM: 0x100, EPOLLWRBAND: 0x200,
        EPOLLMSG: 0x400, EPOLLRDHUP: 0x2000, EPOLLEXCLUSIVE: 0x10000000,
        EPOLLWAKEUP: 0x20000000, EPOLLONESHOT: 0x40000000, EPOLLET: 0x80000000,
    }

    /// `epoll_create1` flags.
    flags(0) EPOLL_CREATE {
        EPOLL_CLOEXEC: 0x80000,
    }

    /// `eventfd2` flags.
    flags(0) EVENTFD {
        EFD_SEMAPHORE: 1, EFD_NONBLOCK: 0x800, EFD_CLOEXEC: 0x80000,
    }

    /// `timerfd_create` flags.
    flags(0) TIMERFD {
        TFD_NONBLOCK: 0x800, TFD_CLOEXEC: 0x80000,
    }

    /// `timerfd_settime` flags.
    flags(0) TIMERFD_SET {
        TFD_TIMER_ABSTIME: 1, TFD_TIMER_CANCEL_ON_SET: 2,
    }

    /// `signalfd4` flags.
    flags(0) SIGNALFD {
        SFD_NONBLOCK: 0x800, SFD_CLOEXEC: 0x80000,
    }

    /// `pipe2` and `dup3` flags.
    flags(0) PIPE {
        O_NONBLOCK: 0x800, O_DIRECT: 0x4000, O_CLOEXEC: 0x80000, O_NOTIFICATION_PIPE: 0x80,
    }

    /// `splice`, `tee` and `vmsplice` flags.
    flags(0) SPLICE {
        SPLICE_F_MOVE: 1, SPLICE_F_NONBLOCK: 2, SPLICE_F_MORE: 4, SPLICE_F_GIFT: 8,
    }

    /// `memfd_create` flags.
    flags(0) MEMFD {
        MFD_CLOEXEC: 1, MFD_ALLOW_SEALING: 2, MFD_HUGETLB: 4, MFD_NOEXEC_SEAL: 8,
        MFD_EXEC: 0x10,
    }

    /// `inotify_init1` flags.
    flags(0) INOTIFY_INIT {
        IN_NONBLOCK: 0x800, IN_CLOEXEC: 0x80000,
    }

    /// `inotify_add_watch` events.
    flags(0) INOTIFY {
        IN_ALL_EVENTS: 0xfff, IN_CLOSE: 0x18, IN_MOVE: 0xc0, IN_ACCESS: 1, IN_MODIFY: 2,
        IN_ATTRIB: 4, IN_CLOSE_WRITE: 8, IN_CLOSE_NOWRITE: 0x10, IN_OPEN: 0x20,
        IN_MOVED_FROM: 0x40, IN_MOVED_TO: 0x80, IN_CREATE: 0x100, IN_DELETE: 0x200,
        IN_DELETE_SELF: 0x400, IN_MOVE_SELF: 0x800, IN_UNMOUNT: 0x2000,
        IN_Q_OVERFLOW: 0x4000, IN_IGNORED: 0x8000, IN_ONLYDIR: 0x1000000,
        IN_DONT_FOLLOW: 0x2000000, IN_EXCL_UNLINK: 0x4000000, IN_MASK_CREATE: 0x10000000,
        IN_MASK_ADD: 0x20000000, IN_ISDIR: 0x40000000, IN_ONESHOT: 0x80000000,
    }

    /// `mmap` protections.
    flags(0) PROT {
        PROT_READ: 1, PROT_WRITE: 2, PROT_EXEC: 4, PROT_SEM: 8, PROT_GROWSDOWN: 0x1000000,
        PROT_GROWSUP: 0x2000000, PROT_NONE: 0,
    }

    /// `mmap` flags; the kind of mapping is a field of four bits.
    flags(0xf) MAP {
        MAP_SHARED: 1, MAP_PRIVATE: 2, MAP_SHARED_VALIDATE: 3, MAP_DROPPABLE: 8,
        MAP_HUGE_1GB: 0x78000000, MAP_HUGE_2MB: 0x54000000, MAP_FIXED: 0x10,
        MAP_ANONYMOUS: 0x20, MAP_32BIT: 0x40, MAP_ABOVE4G: 0x80, MAP_GROWSDOWN: 0x100,
        MAP_DENYWRITE: 0x800, MAP_EXECUTABLE: 0x1000, MAP_LOCKED: 0x2000,
        MAP_NORESERVE: 0x4000, MAP_POPULATE: 0x8000, MAP_NONBLOCK: 0x10000,
        MAP_STACK: 0x20000, MAP_HUGETLB: 0x40000, MAP_SYNC: 0x80000,
        MAP_FIXED_NOREPLACE: 0x100000, MAP_UNINITIALIZED: 0x4000000,
    }

    /// `mremap` flags.
    flags(0) MREMAP {
        MREMAP_MAYMOVE: 1, MREMAP_FIXED: 2, MREMAP_DONTUNMAP: 4,
    }

    /// `msync` flags.
    flags(0) MSYNC {
        MS_ASYNC: 1, MS_INVALIDATE: 2, MS_SYNC: 4,
    }

    /// `madvise` advice.
    list() MADVISE {
        MADV_NORMAL: 0, MADV_RANDOM: 1, MADV_SEQUENTIAL: 2, MADV_WILLNEED: 3,
        MADV_DONTNEED: 4, MADV_FREE: 8, MADV_REMOVE: 9, MADV_DONTFORK: 10, MADV_DOFORK: 11,
        MADV_MERGEABLE: 12, MADV_UNMERGEABLE: 13, MADV_HUGEPAGE: 14, MADV_NOHUGEPAGE: 15,
        MADV_DONTDUMP: 16, MADV_DODUMP: 17, MADV_WIPEONFORK: 18, MADV_KEEPONFORK: 19,
        MADV_COLD: 20, MADV_PAGEOUT: 21, MADV_POPULATE_READ: 22, MADV_POPULATE_WRITE: 23,
        MADV_DONTNEED_LOCKED: 24, MADV_COLLAPSE: 25, MADV_HWPOISON: 100,
        MADV_SOFT_OFFLINE: 101, MADV_GUARD_INSTALL: 102, MADV_GUARD_REMOVE: 103,
    }

    /// `mlockall` flags.
    flags(0) MLOCKALL {
        MCL_CURRENT: 1, MCL_FUTURE: 2, MCL_ONFAULT: 4,
    }

    /// Memory policies; the flags are above the mode.
    flags(0xfff) MEMPOLICY {
        MPOL_DEFAULT: 0, MPOL_PREFERRED: 1, MPOL_BIND: 2, MPOL_INTERLEAVE: 3, MPOL_LOCAL: 4,
        MPOL_PREFERRED_MANY: 5, MPOL_WEIGHTED_INTERLEAVE: 6, MPOL_F_NUMA_BALANCING: 0x2000,
        MPOL_F_RELATIVE_NODES: 0x4000, MPOL_F_STATIC_NODES: 0x8000,
    }

    /// `shmat` flags.
    flags(0) SHMAT {
        SHM_RDONLY: 0x1000, SHM_RND: 0x2000, SHM_REMAP: 0x4000, SHM_EXEC: 0x8000,
    }

    /// `shmget`, `semget` and `msgget` flags; the low nine bits are a mode.
    flags(0) IPC_GET {
        IPC_CREAT: 0x200, IPC_EXCL: 0x400, SHM_HUGETLB: 0x800, SHM_NORESERVE: 0x1000,
    }

    /// `shmctl` commands.
    list() SHMCTL {
        IPC_RMID: 0, IPC_SET: 1, IPC_STAT: 2, IPC_INFO: 3, SHM_LOCK: 11, SHM_UNLOCK: 12,
        SHM_STAT: 13, SHM_INFO: 14, SHM_STAT_ANY: 15,
    }

    /// `semctl` commands.
    list() SEMCTL {
        IPC_RMID: 0, IPC_SET: 1, IPC_STAT: 2, IPC_INFO: 3, GETPID: 11, GETVAL: 12,
        GETALL: 13, GETNCNT: 14, GETZCNT: 15, SETVAL: 16, SETALL: 17, SEM_STAT: 18,
        SEM_INFO: 19, SEM_STAT_ANY: 20,
    }

    /// `msgctl` commands.
    list() MSGCTL {
        IPC_RMID: 0, IPC_SET: 1, IPC_STAT: 2, IPC_INFO: 3, MSG_STAT: 11, MSG_INFO: 12,
        MSG_STAT_ANY: 13,
    }

    /// `msgsnd` and `msgrcv` flags.
    flags(0) MSG_IPC {
        IPC_NOWAIT: 0x800, MSG_NOERROR: 0x1000, MSG_EXCEPT: 0x2000, MSG_COPY: 0x4000,
    }

    /// Socket domains.
    list() DOMAIN {
        AF_UNSPEC: 0, AF_UNIX: 1, AF_INET: 2, AF_AX25: 3, AF_IPX: 4, AF_APPLETALK: 5,
        AF_X25: 9, AF_INET6: 10, AF_KEY: 15, AF_NETLINK: 16, AF_PACKET: 17, AF_RDS: 21,
        AF_PPPOX: 24, AF_LLC: 26, AF_IB: 27, AF_MPLS: 28, AF_CAN: 29, AF_TIPC: 30,
        AF_BLUETOOTH: 31, AF_RXRPC: 33, AF_PHONET: 35, AF_IEEE802154: 36, AF_ALG: 38,
        AF_NFC: 39, AF_VSOCK: 40, AF_KCM: 41, AF_QIPCRTR: 42, AF_SMC: 43, AF_XDP: 44,
        AF_MCTP: 45,
    }

    /// Socket types; the flags are above the type.
    flags(0xf) SOCK {
        SOCK_STREAM: 1, SOCK_DGRAM: 2, SOCK_RAW: 3, SOCK_RDM: 4, SOCK_SEQPACKET: 5,
        SOCK_DCCP: 6, SOCK_PACKET: 10, SOCK_NONBLOCK: 0x800, SOCK_CLOEXEC: 0x80000,
    }

    /// `accept4` flags.
    flags(0) SOCK_FLAGS {
        SOCK_NONBLOCK: 0x800, SOCK_CLOEXEC: 0x80000,
    }

    /// Socket protocols of the internet domains.
    list() PROTOCOL {
        IPPROTO_IP: 0, IPPROTO_ICMP: 1, IPPROTO_IGMP: 2, IPPROTO_IPIP: 4, IPPROTO_TCP: 6,
        IPPROTO_EGP: 8, IPPROTO_PUP: 12, IPPROTO_UDP: 17, IPPROTO_IDP: 22, IPPROTO_DCCP: 33,
        IPPROTO_IPV6: 41, IPPROTO_RSVP: 46, IPPROTO_GRE: 47, IPPROTO_ESP: 50,
        IPPROTO_AH: 51, IPPROTO_ICMPV6: 58, IPPROTO_SCTP: 132, IPPROTO_UDPLITE: 136,
        IPPROTO_RAW: 255, IPPROTO_MPTCP: 262,
    }

    /// `shutdown` directions.
    list() SHUT {
        SHUT_RD: 0, SHUT_WR: 1, SHUT_RDWR: 2,
    }

    /// `MSG_*` flags.
    flags(0) MSG {
        MSG_OOB: 1, MSG_PEEK: 2, MSG_DONTROUTE: 4, MSG_CTRUNC: 8, MSG_PROBE: 0x10,
        MSG_TRUNC: 0x20, MSG_DONTWAIT: 0x40, MSG_EOR: 0x80, MSG_WAITALL: 0x100,
        MSG_FIN: 0x200, MSG_SYN: 0x400, MSG_CONFIRM: 0x800, MSG_RST: 0x1000,
        MSG_ERRQUEUE: 0x2000, MSG_NOSIGNAL: 0x4000, MSG_MORE: 0x8000,
        MSG_WAITFORONE: 0x10000, MSG_BATCH: 0x40000, MSG_SOCK_DEVMEM: 0x2000000,
        MSG_ZEROCOPY: 0x4000000, MSG_FASTOPEN: 0x20000000, MSG_CMSG_CLOEXEC: 0x40000000,
    }

    /// Socket option levels.
    list() SOL {
        SOL_IP: 0, SOL_SOCKET: 1, SOL_TCP: 6, SOL_UDP: 17, SOL_IPV6: 41, SOL_ICMPV6: 58,
        SOL_SCTP: 132, SOL_UDPLITE: 136, SOL_RAW: 255, SOL_PACKET: 263, SOL_NETLINK: 270,
        SOL_ALG: 279, SOL_TLS: 282, SOL_XDP: 283, SOL_MPTCP: 284, SOL_VSOCK: 287,
    }

    /// Options of SOL_SOCKET.
    list() SO {
        SO_DEBUG: 1, SO_REUSEADDR: 2, SO_TYPE: 3, SO_ERROR: 4, SO_DONTROUTE: 5,
        SO_BROADCAST: 6, SO_SNDBUF: 7, SO_RCVBUF: 8, SO_KEEPALIVE: 9, SO_OOBINLINE: 10,
        SO_NO_CHECK: 11, SO_PRIORITY: 12, SO_LINGER: 13, SO_BSDCOMPAT: 14, SO_REUSEPORT: 15,
        SO_PASSCRED: 16, SO_PEERCRED: 17, SO_RCVLOWAT: 18, SO_SNDLOWAT: 19, SO_RCVTIMEO: 20,
        SO_SNDTIMEO: 21, SO_BINDTODEVICE: 25, SO_ATTACH_FILTER: 26, SO_DETACH_FILTER: 27,
        SO_PEERNAME: 28, SO_TIMESTAMP: 29, SO_ACCEPTCONN: 30, SO_PEERSEC: 31,
        SO_SNDBUFFORCE: 32, SO_RCVBUFFORCE: 33, SO_PASSSEC: 34, SO_TIMESTAMPNS: 35,
        SO_MARK: 36, SO_TIMESTAMPING: 37, SO_PROTOCOL: 38, SO_DOMAIN: 39, SO_RXQ_OVFL: 40,
        SO_WIFI_STATUS: 41, SO_PEEK_OFF: 42, SO_NOFCS: 43, SO_LOCK_FILTER: 44,
        SO_SELECT_ERR_QUEUE: 45, SO_BUSY_POLL: 46, SO_MAX_PACING_RATE: 47,
        SO_BPF_EXTENSIONS: 48, SO_INCOMING_CPU: 49, SO_ATTACH_BPF: 50,
        SO_ATTACH_REUSEPORT_CBPF: 51, SO_ATTACH_REUSEPORT_EBPF: 52, SO_CNX_ADVICE: 53,
        SO_MEMINFO: 55, SO_INCOMING_NAPI_ID: 56, SO_COOKIE: 57, SO_PEERGROUPS: 59,
        SO_ZEROCOPY: 60, SO_TXTIME: 61, SO_BINDTOIFINDEX: 62, SO_TIMESTAMP_NEW: 63,
        SO_TIMESTAMPNS_NEW: 64, SO_TIMESTAMPING_NEW: 65, SO_RCVTIMEO_NEW: 66,
        SO_SNDTIMEO_NEW: 67, SO_DETACH_REUSEPORT_BPF: 68, SO_PREFER_BUSY_POLL: 69,
        SO_BUSY_POLL_BUDGET: 70, SO_NETNS_COOKIE: 71, SO_BUF_LOCK: 72, SO_RESERVE_MEM: 73,
        SO_TXREHASH: 74, SO_RCVMARK: 75, SO_PASSPIDFD: 76, SO_PEERPIDFD: 77,
    }

    /// Options of SOL_TCP.
    list() TCP {
        TCP_NODELAY: 1, TCP_MAXSEG: 2, TCP_CORK: 3, TCP_KEEPIDLE: 4, TCP_KEEPINTVL: 5,
        TCP_KEEPCNT: 6, TCP_SYNCNT: 7, TCP_LINGER2: 8, TCP_DEFER_ACCEPT: 9,
        TCP_WINDOW_CLAMP: 10, TCP_INFO: 11, TCP_QUICKACK: 12, TCP_CONGESTION: 13,
        TCP_MD5SIG: 14, TCP_THIN_LINEAR_TIMEOUTS: 16, TCP_THIN_DUPACK: 17,
        TCP_USER_TIMEOUT: 18, TCP_REPAIR: 19, TCP_REPAIR_QUEUE: 20, TCP_QUEUE_SEQ: 21,
        TCP_REPAIR_OPTIONS: 22, TCP_FASTOPEN: 23, TCP_TIMESTAMP: 24, TCP_NOTSENT_LOWAT: 25,
        TCP_CC_INFO: 26, TCP_SAVE_SYN: 27, TCP_SAVED_SYN: 28, TCP_REPAIR_WINDOW: 29,
        TCP_FASTOPEN_CONNECT: 30, TCP_ULP: 31, TCP_MD5SIG_EXT: 32, TCP_FASTOPEN_KEY: 33,
        TCP_FASTOPEN_NO_COOKIE: 34, TCP_ZEROCOPY_RECEIVE: 35, TCP_INQ: 36, TCP_TX_DELAY: 37,
    }

    /// Options of SOL_IP.
    list() IP {
        IP_TOS: 1, IP_TTL: 2, IP_HDRINCL: 3, IP_OPTIONS: 4, IP_ROUTER_ALERT: 5,
        IP_RECVOPTS: 6, IP_RETOPTS: 7, IP_PKTINFO: 8, IP_PKTOPTIONS: 9, IP_MTU_DISCOVER: 10,
        IP_RECVERR: 11, IP_RECVTTL: 12, IP_RECVTOS: 13, IP_MTU: 14, IP_FREEBIND: 15,
        IP_TRANSPARENT: 19, IP_ORIGDSTADDR: 20, IP_MINTTL: 21, IP_NODEFRAG: 22,
        IP_CHECKSUM: 23, IP_BIND_ADDRESS_NO_PORT: 24, IP_RECVFRAGSIZE: 25,
        IP_MULTICAST_IF: 32, IP_MULTICAST_TTL: 33, IP_MULTICAST_LOOP: 34,
        IP_ADD_MEMBERSHIP: 35, IP_DROP_MEMBERSHIP: 36, IP_MULTICAST_ALL: 49,
        IP_UNICAST_IF: 50, IP_LOCAL_PORT_RANGE: 51,
    }

    /// Options of SOL_IPV6.
    list() IPV6 {
        IPV6_ADDRFORM: 1, IPV6_2292PKTINFO: 2, IPV6_UNICAST_HOPS: 16, IPV6_MULTICAST_IF: 17,
        IPV6_MULTICAST_HOPS: 18, IPV6_MULTICAST_LOOP: 19, IPV6_JOIN_GROUP: 20,
        IPV6_LEAVE_GROUP: 21, IPV6_ROUTER_ALERT: 22, IPV6_MTU_DISCOVER: 23, IPV6_MTU: 24,
        IPV6_RECVERR: 25, IPV6_V6ONLY: 26, IPV6_JOIN_ANYCAST: 27, IPV6_LEAVE_ANYCAST: 28,
        IPV6_RECVPKTINFO: 49, IPV6_PKTINFO: 50, IPV6_RECVHOPLIMIT: 51, IPV6_HOPLIMIT: 52,
        IPV6_RECVTCLASS: 66, IPV6_TCLASS: 67, IPV6_AUTOFLOWLABEL: 70,
        IPV6_ADDR_PREFERENCES: 72, IPV6_FREEBIND: 78,
    }

    /// `clone` flags; the low byte is the signal at exit.
    flags(0xff) CLONE {
        SIGCHLD: 17, CLONE_VM: 0x100, CLONE_FS: 0x200, CLONE_FILES: 0x400,
        CLONE_SIGHAND: 0x800, CLONE_PIDFD: 0x1000, CLONE_PTRACE: 0x2000,
        CLONE_VFORK: 0x4000, CLONE_PARENT: 0x8000, CLONE_THREAD: 0x10000,
        CLONE_NEWNS: 0x20000, CLONE_SYSVSEM: 0x40000, CLONE_SETTLS: 0x80000,
        CLONE_PARENT_SETTID: 0x100000, CLONE_CHILD_CLEARTID: 0x200000,
        CLONE_DETACHED: 0x400000, CLONE_UNTRACED: 0x800000, CLONE_CHILD_SETTID: 0x1000000,
        CLONE_NEWCGROUP: 0x2000000, CLONE_NEWUTS: 0x4000000, CLONE_NEWIPC: 0x8000000,
        CLONE_NEWUSER: 0x10000000, CLONE_NEWPID: 0x20000000, CLONE_NEWNET: 0x40000000,
        CLONE_IO: 0x80000000,
    }

    /// `unshare` and `setns` flags.
    flags(0) NAMESPACE {
        CLONE_NEWTIME: 0x80, CLONE_VM: 0x100, CLONE_FS: 0x200, CLONE_FILES: 0x400,
        CLONE_SIGHAND: 0x800, CLONE_THREAD: 0x10000, CLONE_NEWNS: 0x20000,
        CLONE_SYSVSEM: 0x40000, CLONE_NEWCGROUP: 0x2000000, CLONE_NEWUTS: 0x4000000,
        CLONE_NEWIPC: 0x8000000, CLONE_NEWUSER: 0x10000000, CLONE_NEWPID: 0x20000000,
        CLONE_NEWNET: 0x40000000,
    }

    /// `futex` operations; the flags are above the operation.
    flags(0x7f) FUTEX {
        FUTEX_WAIT: 0, FUTEX_WAKE: 1, FUTEX_FD: 2, FUTEX_REQUEUE: 3, FUTEX_CMP_REQUEUE: 4,
        FUTEX_WAKE_OP: 5, FUTEX_LOCK_PI: 6, FUTEX_UNLOCK_PI: 7, FUTEX_TRYLOCK_PI: 8,
        FUTEX_WAIT_BITSET: 9, FUTEX_WAKE_BITSET: 10, FUTEX_WAIT_REQUEUE_PI: 11,
        FUTEX_CMP_REQUEUE_PI: 12, FUTEX_LOCK_PI2: 13, FUTEX_PRIVATE: 0x80,
        FUTEX_CLOCK_REALTIME: 0x100,
    }

    /// `wait4` and `waitid` options.
    flags(0) WAIT {
        WNOHANG: 1, WUNTRACED: 2, WEXITED: 4, WCONTINUED: 8, WNOWAIT: 0x1000000,
        __WNOTHREAD: 0x20000000, __WALL: 0x40000000, __WCLONE: 0x80000000,
    }

    /// `waitid` kinds of id.
    list() IDTYPE {
        P_ALL: 0, P_PID: 1, P_PGID: 2, P_PIDFD: 3,
    }

    /// `rt_sigprocmask` operations.
    list() SIGMASK {
        SIG_BLOCK: 0, SIG_UNBLOCK: 1, SIG_SETMASK: 2,
    }

    /// `sa_flags` of `rt_sigaction`.
    flags(0) SA {
        SA_NOCLDSTOP: 1, SA_NOCLDWAIT: 2, SA_SIGINFO: 4, SA_UNSUPPORTED: 0x400,
        SA_EXPOSE_TAGBITS: 0x800, SA_RESTORER: 0x4000000, SA_ONSTACK: 0x8000000,
        SA_RESTART: 0x10000000, SA_NODEFER: 0x40000000, SA_RESETHAND: 0x80000000,
    }

    /// `ss_flags` of `sigaltstack`.
    flags(0) SS {
        SS_ONSTACK: 1, SS_DISABLE: 2, SS_AUTODISARM: 0x80000000,
    }

    /// Clock ids.
    list() CLOCK {
        CLOCK_REALTIME: 0, CLOCK_MONOTONIC: 1, CLOCK_PROCESS_CPUTIME_ID: 2,
        CLOCK_THREAD_CPUTIME_ID: 3, CLOCK_MONOTONIC_RAW: 4, CLOCK_REALTIME_COARSE: 5,
        CLOCK_MONOTONIC_COARSE: 6, CLOCK_BOOTTIME: 7, CLOCK_REALTIME_ALARM: 8,
        CLOCK_BOOTTIME_ALARM: 9, CLOCK_TAI: 11,
    }

    /// `clock_nanosleep` and `timer_settime` flags.
    flags(0) TIMER {
        TIMER_ABSTIME: 1,
    }

    /// Interval timers.
    list() ITIMER {
        ITIMER_REAL: 0, ITIMER_VIRTUAL: 1, ITIMER_PROF: 2,
    }

    /// Resources that have limits.
    list() RLIMIT {
        RLIMIT_CPU: 0, RLIMIT_FSIZE: 1, RLIMIT_DATA: 2, RLIMIT_STACK: 3, RLIMIT_CORE: 4,
        RLIMIT_RSS: 5, RLIMIT_NPROC: 6, RLIMIT_NOFILE: 7, RLIMIT_MEMLOCK: 8, RLIMIT_AS: 9,
        RLIMIT_LOCKS: 10, RLIMIT_SIGPENDING: 11, RLIMIT_MSGQUEUE: 12, RLIMIT_NICE: 13,
        RLIMIT_RTPRIO: 14, RLIMIT_RTTIME: 15,
    }

    /// Whose usage `getrusage` reports.
    list() RUSAGE {
        RUSAGE_CHILDREN: 0xffffffff, RUSAGE_SELF: 0, RUSAGE_THREAD: 1,
    }

    /// Whose priority `getpriority` reports.
    list() PRIO {
        PRIO_PROCESS: 0, PRIO_PGRP: 1, PRIO_USER: 2,
    }

    /// Scheduling policies.
    flags(0xff) SCHED {
        SCHED_OTHER: 0, SCHED_FIFO: 1, SCHED_RR: 2, SCHED_BATCH: 3, SCHED_IDLE: 5,
        SCHED_DEADLINE: 6, SCHED_EXT: 7, SCHED_RESET_ON_FORK: 0x40000000,
    }

    /// `prctl` options.
    list() PRCTL {
        PR_SET_PDEATHSIG: 1, PR_GET_PDEATHSIG: 2, PR_GET_DUMPABLE: 3, PR_SET_DUMPABLE: 4,
        PR_GET_UNALIGN: 5, PR_SET_UNALIGN: 6, PR_GET_KEEPCAPS: 7, PR_SET_KEEPCAPS: 8,
        PR_GET_FPEMU: 9, PR_SET_FPEMU: 10, PR_GET_FPEXC: 11, PR_SET_FPEXC: 12,
        PR_GET_TIMING: 13, PR_SET_TIMING: 14, PR_SET_NAME: 15, PR_GET_NAME: 16,
        PR_GET_ENDIAN: 19, PR_SET_ENDIAN: 20, PR_GET_SECCOMP: 21, PR_SET_SECCOMP: 22,
        PR_CAPBSET_READ: 23, PR_CAPBSET_DROP: 24, PR_GET_TSC: 25, PR_SET_TSC: 26,
        PR_GET_SECUREBITS: 27, PR_SET_SECUREBITS: 28, PR_SET_TIMERSLACK: 29,
        PR_GET_TIMERSLACK: 30, PR_TASK_PERF_EVENTS_DISABLE: 31,
        PR_TASK_PERF_EVENTS_ENABLE: 32, PR_MCE_KILL: 33, PR_MCE_KILL_GET: 34, PR_SET_MM: 35,
        PR_SET_CHILD_SUBREAPER: 36, PR_GET_CHILD_SUBREAPER: 37, PR_SET_NO_NEW_PRIVS: 38,
        PR_GET_NO_NEW_PRIVS: 39, PR_GET_TID_ADDRESS: 40, PR_SET_THP_DISABLE: 41,
        PR_GET_THP_DISABLE: 42, PR_CAP_AMBIENT: 47, PR_GET_SPECULATION_CTRL: 52,
        PR_SET_SPECULATION_CTRL: 53, PR_SET_TAGGED_ADDR_CTRL: 55,
        PR_GET_TAGGED_ADDR_CTRL: 56, PR_SET_IO_FLUSHER: 57, PR_GET_IO_FLUSHER: 58,
        PR_SET_SYSCALL_USER_DISPATCH: 59, PR_SCHED_CORE: 62, PR_SET_MDWE: 65,
        PR_GET_MDWE: 66, PR_SET_MEMORY_MERGE: 67, PR_GET_MEMORY_MERGE: 68,
        PR_TIMER_CREATE_RESTORE_IDS: 77, PR_FUTEX_HASH: 78, PR_GET_AUXV: 0x41555856,
        PR_SET_VMA: 0x53564d41, PR_SET_PTRACER: 0x59616d61,
    }

    /// `arch_prctl` codes.
    list() ARCH_PRCTL {
        ARCH_SET_GS: 0x1001, ARCH_SET_FS: 0x1002, ARCH_GET_FS: 0x1003, ARCH_GET_GS: 0x1004,
        ARCH_GET_CPUID: 0x1011, ARCH_SET_CPUID: 0x1012, ARCH_GET_XCOMP_SUPP: 0x1021,
        ARCH_GET_XCOMP_PERM: 0x1022, ARCH_REQ_XCOMP_PERM: 0x1023,
        ARCH_GET_XCOMP_GUEST_PERM: 0x1024, ARCH_REQ_XCOMP_GUEST_PERM: 0x1025,
        ARCH_MAP_VDSO_X32: 0x2001, ARCH_MAP_VDSO_32: 0x2002, ARCH_MAP_VDSO_64: 0x2003,
        ARCH_CET_STATUS: 0x3001, ARCH_GET_UNTAG_MASK: 0x4001,
        ARCH_ENABLE_TAGGED_ADDR: 0x4002, ARCH_GET_MAX_TAG_BITS: 0x4003,
        ARCH_FORCE_TAGGED_SVA: 0x4004, ARCH_SHSTK_ENABLE: 0x5001,
        ARCH_SHSTK_DISABLE: 0x5002, ARCH_SHSTK_LOCK: 0x5003, ARCH_SHSTK_UNLOCK: 0x5004,
        ARCH_SHSTK_STATUS: 0x5005,
    }

    /// `getrandom` flags.
    flags(0) GETRANDOM {
        GRND_NONBLOCK: 1, GRND_RANDOM: 2, GRND_INSECURE: 4,
    }

    /// `membarrier` commands.
    list() MEMBARRIER {
        MEMBARRIER_CMD_QUERY: 0, MEMBARRIER_CMD_GLOBAL: 1,
        MEMBARRIER_CMD_GLOBAL_EXPEDITED: 2, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED: 4,
        MEMBARRIER_CMD_PRIVATE_EXPEDITED: 8, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: 16,
        MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE: 32,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: 64,
        MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ: 128,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ: 256,
        MEMBARRIER_CMD_GET_REGISTRATIONS: 512,
    }

    /// `kcmp` kinds.
    list() KCMP {
        KCMP_FILE: 0, KCMP_VM: 1, KCMP_FILES: 2, KCMP_FS: 3, KCMP_SIGHAND: 4, KCMP_IO: 5,
        KCMP_SYSVSEM: 6, KCMP_EPOLL_TFD: 7,
    }
}

/// The names of the options of a socket option level, where known.
pub fn socket_options(level: u64) -> Option<&'static Names> {
    match level {
        0 => Some(&IP),
        1 => Some(&SO),
        6 => Some(&TCP),
        41 => Some(&IPV6),
        _ => None,
    }
}

/// Signals by number; the first is 1.
static SIGNALS: &[&str] = &[
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The first real-time signal as the kernel counts.
pub const SIGRTMIN: u64 = 32;
/// The last signal.
pub const SIGRTMAX: u64 = 64;

static REAL_TIME_SIGNALS: &[&str] = &[
    "SIGRT_0", "SIGRT_1", "SIGRT_2", "SIGRT_3", "SIGRT_4", "SIGRT_5", "SIGRT_6", "SIGRT_7",
    "SIGRT_8", "SIGRT_9", "SIGRT_10", "SIGRT_11", "SIGRT_12", "SIGRT_13", "SIGRT_14", "SIGRT_15",
    "SIGRT_16", "SIGRT_17", "SIGRT_18", "SIGRT_19", "SIGRT_20", "SIGRT_21", "SIGRT_22", "SIGRT_23",
    "SIGRT_24", "SIGRT_25", "SIGRT_26", "SIGRT_27", "SIGRT_28", "SIGRT_29", "SIGRT_30", "SIGRT_31",
    "SIGRT_32",
];

/// The name of a signal. Real-time signals are counted from the kernel's
/// first, 32, as strace does: `SIGRT_2` is glibc's `SIGRTMIN`.
pub fn signal_name(number: u64) -> Option<&'static str> {
    match number {
        0 => None,
        1..SIGRTMIN => SIGNALS.get(number as usize - 1).copied(),
        SIGRTMIN..=SIGRTMAX => REAL_TIME_SIGNALS.get((number - SIGRTMIN) as usize).copied(),
        _ => None,
    }
}

/// The number of a signal, from its name with or without `SIG`.
pub fn signal_number(name: &str) -> Option<u64> {
    let same = |known: &str| known == name || known.strip_prefix("SIG") == Some(name);
    (1..=SIGRTMAX).find(|&number| signal_name(number).is_some_and(same))
}

/// Errors: number, name, and the words of the C library.
static ERRORS: &[(i32, &str, &str)] = &[
    (1, "EPERM", "Operation not permitted"),
    (2, "ENOENT", "No such file or directory"),
    (3, "ESRCH", "No such process"),
    (4, "EINTR", "Interrupted system call"),
    (5, "EIO", "Input/output error"),
    (6, "ENXIO", "No such device or address"),
    (7, "E2BIG", "Argument list too long"),
    (8, "ENOEXEC", "Exec format error"),
    (9, "EBADF", "Bad file descriptor"),
    (10, "ECHILD", "No child processes"),
    (11, "EAGAIN", "Resource temporarily unavailable"),
    (12, "ENOMEM", "Cannot allocate memory"),
    (13, "EACCES", "Permission denied"),
    (14, "EFAULT", "Bad address"),
    (15, "ENOTBLK", "Block device required"),
    (16, "EBUSY", "Device or resource busy"),
    (17, "EEXIST", "File exists"),
    (18, "EXDEV", "Invalid cross-device link"),
    (19, "ENODEV", "No such device"),
    (20, "ENOTDIR", "Not a directory"),
    (21, "EISDIR", "Is a directory"),
    (22, "EINVAL", "Invalid argument"),
    (23, "ENFILE", "Too many open files in system"),
    (24, "EMFILE", "Too many open files"),
    (25, "ENOTTY", "Inappropriate ioctl for device"),
    (26, "ETXTBSY", "Text file busy"),
    (27, "EFBIG", "File too large"),
    (28, "ENOSPC", "No space left on device"),
    (29, "ESPIPE", "Illegal seek"),
    (30, "EROFS", "Read-only file system"),
    (31, "EMLINK", "Too many links"),
    (32, "EPIPE", "Broken pipe"),
    (33, "EDOM", "Numerical argument out of domain"),
    (34, "ERANGE", "Numerical result out of range"),
    (35, "EDEADLK", "Resource deadlock avoided"),
    (36, "ENAMETOOLONG", "File name too long"),
    (37, "ENOLCK", "No locks available"),
    (38, "ENOSYS", "Function not implemented"),
    (39, "ENOTEMPTY", "Directory not empty"),
    (40, "ELOOP", "Too many levels of symbolic links"),
    (42, "ENOMSG", "No message of desired type"),
    (43, "EIDRM", "Identifier removed"),
    (44, "ECHRNG", "Channel number out of range"),
    (45, "EL2NSYNC", "Level 2 not synchronized"),
    (46, "EL3HLT", "Level 3 halted"),
    (47, "EL3RST", "Level 3 reset"),
    (48, "ELNRNG", "Link number out of range"),
    (49, "EUNATCH", "Protocol driver not attached"),
    (50, "ENOCSI", "No CSI structure available"),
    (51, "EL2HLT", "Level 2 halted"),
    (52, "EBADE", "Invalid exchange"),
    (53, "EBADR", "Invalid request descriptor"),
    (54, "EXFULL", "Exchange full"),
    (55, "ENOANO", "No anode"),
    (56, "EBADRQC", "Invalid request code"),
    (57, "EBADSLT", "Invalid slot"),
    (59, "EBFONT", "Bad font file format"),
    (60, "ENOSTR", "Device not a stream"),
    (61, "ENODATA", "No data available"),
    (62, "ETIME", "Timer expired"),
    (63, "ENOSR", "Out of streams resources"),
    (64, "ENONET", "Machine is not on the network"),
    (65, "ENOPKG", "Package not installed"),
    (66, "EREMOTE", "Object is remote"),
    (67, "ENOLINK", "Link has been severed"),
    (68, "EADV", "Advertise error"),
    (69, "ESRMNT", "Srmount error"),
    (70, "ECOMM", "Communication error on send"),
    (71, "EPROTO", "Protocol error"),
    (72, "EMULTIHOP", "Multihop attempted"),
    (73, "EDOTDOT", "RFS specific error"),
    (74, "EBADMSG", "Bad message"),
    (75, "EOVERFLOW", "Value too large for defined data type"),
    (76, "ENOTUNIQ", "Name not unique on network"),
    (77, "EBADFD", "File descriptor in bad state"),
    (78, "EREMCHG", "Remote address changed"),
    (79, "ELIBACC", "Can not access a needed shared library"),
    (80, "ELIBBAD", "Accessing a corrupted shared library"),
    (81, "ELIBSCN", ".lib section in a.out corrupted"),
    (
        82,
        "ELIBMAX",
        "Attempting to link in too many shared libraries",
    ),
    (83, "ELIBEXEC", "Cannot exec a shared library directly"),
    (
        84,
        "EILSEQ",
        "Invalid or incomplete multibyte or wide character",
    ),
    (
        85,
        "ERESTART",
        "Interrupted system call should be restarted",
    ),
    (86, "ESTRPIPE", "Streams pipe error"),
    (87, "EUSERS", "Too many users"),
    (88, "ENOTSOCK", "Socket operation on non-socket"),
    (89, "EDESTADDRREQ", "Destination address required"),
    (90, "EMSGSIZE", "Message too long"),
    (91, "EPROTOTYPE", "Protocol wrong type for socket"),
    (92, "ENOPROTOOPT", "Protocol not available"),
    (93, "EPROTONOSUPPORT", "Protocol not supported"),
    (94, "ESOCKTNOSUPPORT", "Socket type not supported"),
    (95, "EOPNOTSUPP", "Operation not supported"),
    (96, "EPFNOSUPPORT", "Protocol family not supported"),
    (
        97,
        "EAFNOSUPPORT",
        "Address family not supported by protocol",
    ),
    (98, "EADDRINUSE", "Address already in use"),
    (99, "EADDRNOTAVAIL", "Cannot assign requested address"),
    (100, "ENETDOWN", "Network is down"),
    (101, "ENETUNREACH", "Network is unreachable"),
    (102, "ENETRESET", "Network dropped connection on reset"),
    (103, "ECONNABORTED", "Software caused connection abort"),
    (104, "ECONNRESET", "Connection reset by peer"),
    (105, "ENOBUFS", "No buffer space available"),
    (106, "EISCONN", "Transport endpoint is already connected"),
    (107, "ENOTCONN", "Transport endpoint is not connected"),
    (
        108,
        "ESHUTDOWN",
        "Cannot send after transport endpoint shutdown",
    ),
    (109, "ETOOMANYREFS", "Too many references: cannot splice"),
    (110, "ETIMEDOUT", "Connection timed out"),
    (111, "ECONNREFUSED", "Connection refused"),
    (112, "EHOSTDOWN", "Host is down"),
    (113, "EHOSTUNREACH", "No route to host"),
    (114, "EALREADY", "Operation already in progress"),
    (115, "EINPROGRESS", "Operation now in progress"),
    (116, "ESTALE", "Stale file handle"),
    (117, "EUCLEAN", "Structure needs cleaning"),
    (118, "ENOTNAM", "Not a XENIX named type file"),
    (119, "ENAVAIL", "No XENIX semaphores available"),
    (120, "EISNAM", "Is a named type file"),
    (121, "EREMOTEIO", "Remote I/O error"),
    (122, "EDQUOT", "Disk quota exceeded"),
    (123, "ENOMEDIUM", "No medium found"),
    (124, "EMEDIUMTYPE", "Wrong medium type"),
    (125, "ECANCELED", "Operation canceled"),
    (126, "ENOKEY", "Required key not available"),
    (127, "EKEYEXPIRED", "Key has expired"),
    (128, "EKEYREVOKED", "Key has been revoked"),
    (129, "EKEYREJECTED", "Key was rejected by service"),
    (130, "EOWNERDEAD", "Owner died"),
    (131, "ENOTRECOVERABLE", "State not recoverable"),
    (132, "ERFKILL", "Operation not possible due to RF-kill"),
    (133, "EHWPOISON", "Memory page has hardware error"),
    (512, "ERESTARTSYS", "To be restarted"),
    (513, "ERESTARTNOINTR", "To be restarted"),
    (514, "ERESTARTNOHAND", "To be restarted if no handler"),
    (516, "ERESTART_RESTARTBLOCK", "Interrupted by signal"),
];

/// The name of an error (a positive errno).
pub fn errno_name(errno: i32) -> Option<&'static str> {
    error(errno).map(|entry| entry.1)
}

/// What an error means, as the C library words it.
pub fn errno_text(errno: i32) -> Option<&'static str> {
    error(errno).map(|entry| entry.2)
}

fn error(errno: i32) -> Option<&'static (i32, &'static str, &'static str)> {
    let index = ERRORS.binary_search_by_key(&errno, |entry| entry.0).ok()?;
    ERRORS.get(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(names: &Names, value: u64) -> String {
        let mut text = String::new();
        names.describe(value, &mut text).unwrap();
        text
    }

    #[test]
    fn flags_are_joined_and_fields_are_read_as_one_value() {
        assert_eq!(show(&OPEN, 0), "O_RDONLY");
        assert_eq!(show(&OPEN, 0x80241), "O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC");
        assert_eq!(show(&OPEN, 0x101000), "O_RDONLY|O_SYNC");
        assert_eq!(
            show(&SOCK, 0x80805),
            "SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC"
        );
        assert_eq!(show(&FUTEX, 128), "FUTEX_WAIT|FUTEX_PRIVATE");
        assert_eq!(show(&PROT, 0), "PROT_NONE");
        assert_eq!(show(&PROT, 3), "PROT_READ|PROT_WRITE");
        assert_eq!(show(&MAP, 0x22), "MAP_PRIVATE|MAP_ANONYMOUS");
        assert_eq!(show(&CLONE, 0x11), "SIGCHLD");
        assert_eq!(show(&CLONE, 0x100), "CLONE_VM");
    }

    #[test]
    fn what_has_no_name_is_shown_as_a_number() {
        assert_eq!(show(&AT, 0), "0");
        assert_eq!(show(&MSG, 0x4000_0000_0000), "0x400000000000");
        assert_eq!(show(&MSG, 0x1000_0040), "MSG_DONTWAIT|0x10000000");
        assert_eq!(show(&SEEK, 9), "9");
        assert_eq!(show(&IOCTL, 0x8901_2345), "0x89012345");
        assert_eq!(show(&SOCK, 15), "15");
    }

    #[test]
    fn in_a_list_of_bits_the_longer_name_comes_first() {
        for names in [&OPEN, &STATX, &INOTIFY, &MAP, &WAIT, &MSG] {
            for (at, (value, name)) in names.values.iter().enumerate() {
                let (field, flag) = (value & names.field, value & !names.field);
                assert!(field == 0 || flag == 0, "{name} is both field and flag");
                for (earlier, other) in &names.values[..at] {
                    let part = flag & earlier == *earlier & !names.field;
                    assert!(
                        flag == 0 || earlier & !names.field == 0 || !part,
                        "{name} after {other}"
                    );
                }
            }
        }
    }

    #[test]
    fn signals_and_errors_have_names() {
        assert_eq!(signal_name(1), Some("SIGHUP"));
        assert_eq!(signal_name(31), Some("SIGSYS"));
        assert_eq!(signal_name(34), Some("SIGRT_2"));
        assert_eq!(signal_name(64), Some("SIGRT_32"));
        assert_eq!(signal_name(0), None);
        assert_eq!(signal_name(65), None);
        assert_eq!(signal_number("TERM"), Some(15));
        assert_eq!(signal_number("SIGTERM"), Some(15));
        assert_eq!(errno_name(11), Some("EAGAIN"));
        assert_eq!(errno_text(2), Some("No such file or directory"));
        assert_eq!(errno_name(0), None);
        assert!(ERRORS.is_sorted_by(|a, b| a.0 < b.0));
    }
}
