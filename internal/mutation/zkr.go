package main

// The command, and the guard that ends what it runs.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name:    "zkr: the guard does not look at the clock",
			File:    "cmd/zkr/internal/guard/inside.go",
			Func:    "(*inside).trust",
			Old:     "g.killAt, g.termAt = until, until-g.grace",
			New:     "_ = until",
			Package: "./cmd/zkr",
			Test:    "TestStoppedZkrDoesNotKeepTheCommand",
		},
		{
			Name:    "zkr: descendants escape from the guard",
			File:    "cmd/zkr/internal/guard/tree_linux.go",
			Old:     "unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)",
			New:     "unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)",
			Package: "./cmd/zkr",
			Test:    "TestKilledZkrTakesTheCommandAlong",
		},
		{
			Name:    "zkr: a command outlives both its parents",
			File:    "cmd/zkr/internal/guard/tree_linux.go",
			Old:     "attr.Pdeathsig = syscall.SIGKILL",
			New:     "attr.Pdeathsig = 0",
			Package: "./cmd/zkr",
			Test:    "TestCommandDiesWithBothItsParents",
		},
		{
			Name:    "zkr: what a killed guard has left goes on",
			File:    "cmd/zkr/internal/guard/process.go",
			Old:     "if !clean {",
			New:     "if !clean && false {",
			Package: "./cmd/zkr",
			Test:    "TestKilledGuardTakesTheCommandAlong",
		},
		{
			Name:    "zkr: a guard that is stopped keeps the command",
			File:    "cmd/zkr/run.go",
			Func:    "(*job).renew",
			Old:     "j.process.Abandon()",
			New:     "",
			Package: "./cmd/zkr",
			Test:    "TestStoppedGuardDoesNotKeepTheCommand",
		},
		{
			Name:    "zkr: what a command leaves behind goes on",
			File:    "cmd/zkr/internal/guard/inside.go",
			Func:    "(*inside).changed",
			Old:     "g.end(g.grace)",
			New:     "",
			Package: "./cmd/zkr",
			Test:    "TestWhatACommandLeavesBehindEndsBeforeTheLockIsGivenBack",
		},
		{
			Name:    "zkr: a lost member waits for servers that are silent",
			File:    "cmd/zkr/groupjoin.go",
			Func:    "membership",
			Old:     "case <-s.Done():",
			New:     "case <-ctx.Done():",
			Package: "./cmd/zkr",
			Test:    "TestLossEndsZkrThoughNoServerAnswers",
		},
		{
			Name:    "zkr: zkr stops itself where no shell continues it",
			File:    "cmd/zkr/run.go",
			Func:    "(*job).suspended",
			Old:     "if j.terminal.closed() {",
			New:     "if false {",
			Package: "./cmd/zkr",
			Test:    "TestBackgroundReaderEndsWithItsShell",
		},
	}...)
}
