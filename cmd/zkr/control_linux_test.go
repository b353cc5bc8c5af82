package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestCommandInheritsDescriptors(t *testing.T) {
	s := recipestest.Start(t)
	for _, fd := range []string{"3", "4", "5", "17"} {
		cmd := zkr(t, s.ConnectString(), "lock", s.Root(t)+"/lock", "--", "bash", "-c", "echo child >&"+fd)
		out := t.TempDir() + "/out"
		// The shell opens the descriptor and then becomes zkr.
		sh := exec.Command("bash", "-c", "exec "+fd+`>"$0"; exec "$@"`, out, cmd.Path)
		sh.Args = append(sh.Args, cmd.Args[1:]...)
		sh.Env = cmd.Env
		msg, err := sh.CombinedOutput()
		assert.NoError(t, err, "%s: %s", fd, msg)
		got, _ := os.ReadFile(out)
		assert.Equal(t, "child\n", string(got), "descriptor %s", fd)
	}
}

func TestInheritedPipeStaysAsItWas(t *testing.T) {
	s := recipestest.Start(t)
	var fds [2]int
	require.NoError(t, syscall.Pipe2(fds[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC))
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	defer r.Close()
	defer w.Close()
	cmd := zkr(t, s.ConnectString(), "lock", s.Root(t)+"/lock", "--", "sh", "-c", "cat /proc/self/fdinfo/3")
	cmd.ExtraFiles = []*os.File{r}
	got := finish(t, cmd)
	require.Zero(t, got.status, got.stderr)
	assert.Regexp(t, `flags:\s+0*4000\n`, got.stdout, "O_NONBLOCK, as make's jobserver may have it")
}

// brokenStderr gives a process a stderr without a reader, which is full or closed.
func brokenStderr(t *testing.T, cmd *exec.Cmd, full bool) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	if full {
		t.Cleanup(func() { r.Close() })
		fd := int(w.Fd()) // which makes it block
		// Fill the pipe without blocking, and let later writes block.
		require.NoError(t, syscall.SetNonblock(fd, true))
		for err == nil {
			_, err = syscall.Write(fd, make([]byte, 1))
		}
		require.NoError(t, syscall.SetNonblock(fd, false))
	} else {
		require.NoError(t, r.Close())
	}
	t.Cleanup(func() { w.Close() })
	cmd.Stderr = w
}

func TestStandardErrorThatNobodyReadsChangesNothing(t *testing.T) {
	for name, full := range map[string]bool{"closed": false, "full": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := recipestest.Start(t)
			path := s.Root(t) + "/lock"
			lease := lockNow(t, s, path)
			cmd := zkr(t, s.ConnectString(), "lock", path, "--", "sh", "-c", `exec 2>/dev/null; trap 'exit 7' TERM; echo $$; while :; do sleep 0.05; done`)
			brokenStderr(t, cmd, full)
			out, in, err := os.Pipe()
			require.NoError(t, err)
			defer out.Close()
			cmd.Stdout = in
			require.NoError(t, cmd.Start())
			in.Close()
			ended := suite.Later(func() error { return cmd.Wait() })

			awaitContenders(t, s, path, 2)
			// zkr notes its wait on stderr, where the write can block or raise SIGPIPE.
			time.Sleep(quiet + 200*time.Millisecond) // the note of the wait
			require.NoError(t, lease.Unlock(suite.Lasting(t)))
			require.NoError(t, suite.Err(out.Read(make([]byte, 1))), "zkr was ended by its own note")
			m := lock.New(s.Client(t), path)
			line := suite.Must(t, m.Contenders)
			require.NoError(t, m.Revoke(suite.Lasting(t), line[0].Node))
			require.Error(t, suite.Wait(t, ended))
			assert.Equal(t, 7, cmd.ProcessState.ExitCode(), "SIGTERM went to the command")
			awaitContenders(t, s, path, 0)
		})
	}
}

func TestSIGINTEndsZkrAsItEndsTheCommand(t *testing.T) {
	notUnderNohup(t)
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	p := start(t, zkr(t, s.ConnectString(), "lock", path, "--", "sh", "-c", "echo $$; exec sleep 1000"))
	p.pids()

	// Another zkr waits.
	waiter := start(t, zkr(t, s.ConnectString(), "lock", path, "--", "true"))
	awaitContenders(t, s, path, 2)
	for _, p := range []*process{waiter, p} {
		p.signal(syscall.SIGINT)
		p.status()
		state := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		assert.True(t, state.Signaled() && state.Signal() == syscall.SIGINT, "%v: a shell's loop would go on", state)
	}

	r := runZkr(t, s.ConnectString(), "lock", "--quiet", path, "--", "sh", "-c", "exit 130")
	assert.Equal(t, 130, r.status, "that is the command's own")
	assert.Empty(t, r.stderr)
}
