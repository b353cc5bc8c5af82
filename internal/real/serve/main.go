// Serve starts a real ZooKeeper (see package ensemble), and runs a command with its address in
// ZKRECIPES_SERVERS. The servers end with the command.
//
//	go run ./internal/real/serve go test -run '/^real$' ./lock
//	go run ./internal/real/serve -members 3 go test -run '/^real$' ./lock
//
// The exit status is the command's.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/real/program"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func main() {
	testing.Init() // package ensemble looks at the flags of tests
	members := flag.Int("members", 1, "how many members the ensemble has")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: serve [-members N] COMMAND...")
		os.Exit(2)
	}

	// A signal from the terminal also reaches the command. Serve must outlive it to stop the
	// servers.
	signal.Ignore(os.Interrupt)
	err := program.Run("serve", func(tb testing.TB) error {
		servers := ensemble.Start(tb, *members).ConnectString()
		fmt.Fprintf(os.Stderr, "serve: ZooKeeper at %s\n", servers)
		cmd := exec.Command(flag.Arg(0), flag.Args()[1:]...)
		cmd.Env = append(os.Environ(), "ZKRECIPES_SERVERS="+servers, "ZKRECIPES_REQUIRE_REAL=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() { cmd.Process.Signal(<-stop) }()
		return cmd.Wait()
	})

	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}
