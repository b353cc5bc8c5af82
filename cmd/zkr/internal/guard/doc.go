// Package guard runs a command that must not outlive a lock.
//
// A second process of the same binary, the guard, runs between zkr and the command. It's the
// command's parent, and it knows how long the lock can be trusted:
//
//	zkr ── trusted until … ──▶ guard ──▶ command ──▶ …
//	 ▲                           │
//	 └── started, exited, gone ──┘
//
// The guard ends the command and all descendants when trust ends: it sends SIGTERM a grace earlier
// and SIGKILL at that moment. So it doesn't matter if zkr is stopped or swapped out. If zkr is
// killed, the guard's pipe closes and the guard ends the command. If the guard is killed, the
// kernel kills the command (on Linux only) and zkr kills the descendants.
//
// On Linux the guard is a subreaper: a descendant whose parent dies becomes a child of the guard.
// So no descendant can escape by setsid or a double fork. If zkr may make a control group, the
// command runs in it and SIGKILL goes to the group, too. On other systems the guard can only end
// the command's process group.
//
// The command has its own process group, in the background of the terminal (if there is a
// terminal). It stops when it reads from the terminal, and zkr then gets an Event of kind Stopped.
package guard
