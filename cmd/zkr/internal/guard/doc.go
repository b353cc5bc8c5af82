// Package guard runs a command that must not outlive a lock.
//
// Between zkr and the command stands another process of the same binary, the guard. It is the
// parent of the command, and knows until when what zkr holds can be trusted:
//
//	zkr ── trusted until … ──▶ guard ──▶ command ──▶ …
//	 ▲                           │
//	 └── started, exited, gone ──┘
//
// The guard ends the command and all its descendants when trust runs out: SIGTERM a grace before,
// and SIGKILL at that moment. So a zkr that is stopped, or swapped out, does not matter. When zkr
// is killed, the guard's pipe closes, and the guard ends the command too. When the guard is killed,
// the kernel kills the command (Linux alone), and zkr kills its descendants.
//
// On Linux the guard is a subreaper: a descendant whose parent dies becomes its child, so none
// escapes by setsid or a double fork. Elsewhere the command's process group is all that is ended.
//
// The command has a process group of its own, in the background of a terminal if there is one. It
// is stopped when it reads from the terminal, and zkr is told: an Event of kind Stopped.
package guard
