// Command zkr is the toolkit of zkrecipes for operators, cron jobs and programs in any language. It
// holds a lock around a command and shows who holds locks. See docs/zkr.md.
package main

import (
	"context"
	"os"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
)

func main() {
	// The guard is a process of this binary too.
	guard.Main()
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	status := run(context.Background(), a, os.Args[1:])
	if a.interrupted {
		raiseInterrupt() // a shell ends its loop because of the signal, but not because of a status
	}
	os.Exit(status)
}

// run runs one command line and returns its exit status.
func run(ctx context.Context, a *app, args []string) int {
	notes := newNotes(a.stderr)
	defer notes.close()
	a.log = notes

	root := newRootCommand(a)
	root.SetArgs(append([]string{}, args...)) // cobra takes nil for os.Args
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)

	err := root.ExecuteContext(ctx)
	if err != nil && !a.began {
		err = usage(err) // from cobra: an unknown command or flag
	}
	return a.exitStatus(err)
}
