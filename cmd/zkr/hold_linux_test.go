package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// family is a command that prints the process IDs of itself, of a child and of one in a session of
// its own whose parent is dead. None of them ends by itself, and SIGTERM ends none of them.
const family = `
	trap 'echo term' TERM
	sh -c 'trap "" TERM; echo $$ >&3; while :; do sleep 1; done' 3>"$DIR/child" >/dev/null &
	(setsid sh -c 'trap "" TERM; echo $$ >&3; while :; do sleep 1; done' 3>"$DIR/setsid" >/dev/null &)
	until [ -s "$DIR/child" ] && [ -s "$DIR/setsid" ]; do sleep 0.05; done
	echo $$ $(cat "$DIR/child" "$DIR/setsid")
	while :; do sleep 1; done`

// Session timeouts: one to wait for, and one that a busy machine does not reach.
const short, long = "10s", "40s"

// startFamily starts a family under a lock, and returns its process IDs once it holds the lock.
func startFamily(t *testing.T, servers, path, timeout string) (*process, []int) {
	t.Helper()
	cmd := zkr(t, servers, "lock", "--timeout", timeout, path, "--", "sh", "-c", family)
	cmd.Env = append(cmd.Env, "DIR="+t.TempDir())
	p := start(t, cmd)
	return p, p.pids()
}

// lockNow waits for the lock at path.
func lockNow(t *testing.T, s *recipestest.Server, path string) *lock.Lease {
	t.Helper()
	lease := suite.Got(lock.New(s.Client(t), path).Lock(suite.Within(t, hang)))(t)
	return lease
}

func TestBusyAndTimedOutAreToldApart(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		lease := lockNow(t, s, path)

		r := timedOut(t, s, 5*time.Second, "lock", path, "--", "true")
		assert.Contains(t, r.stderr, "waiting for the lock "+path)
		assert.Equal(t, 1, strings.Count(r.stderr, "--wait has passed"), r.stderr)

		require.NoError(t, lease.Unlock(suite.Lasting(t)))
		r = runZkr(t, s.ConnectString(), "lock", "--try", path, "--", "true")
		assert.Zero(t, r.status, r.stderr)
	})
}

// timedOut runs zkr with --wait. That time must pass after zkr has connected. On a busy machine
// connecting can take all of it, so timedOut tries again with more.
func timedOut(t *testing.T, s *recipestest.Server, wait time.Duration, args ...string) result {
	t.Helper()
	for ; ; wait *= 2 {
		r := runZkr(t, s.ConnectString(), append([]string{"--wait", wait.String()}, args...)...)
		if r.status != exitUnreachable {
			require.Equal(t, exitTimedOut, r.status, r.stderr)
			return r
		}
		require.Less(t, wait, hang, r.stderr)
	}
}

func TestUnreachableServersAreToldApart(t *testing.T) {
	r := runZkr(t, "127.0.0.1:1", "lock", "--wait", "4s", "/a", "--", "true")
	assert.Equal(t, exitUnreachable, r.status)
	assert.Contains(t, r.stderr, "waiting for a server of 127.0.0.1:1\n")
}

func TestExclusiveAndSharedLocksExcludeEachOther(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		const forever = `echo $$; exec sleep 1000`
		// Readers share the lock, and a writer can't have it meanwhile.
		reader := start(t, zkr(t, s.ConnectString(), "lock", "--shared", path, "--", "sh", "-c", forever))
		reader.pids()
		other := runZkr(t, s.ConnectString(), "lock", "--shared", path, "--", "true")
		require.Zero(t, other.status, other.stderr)
		r := runZkr(t, s.ConnectString(), "lock", "--try", path, "--", "true")
		require.Equal(t, exitBusy, r.status, r.stderr)

		// A writer waits for the reader, and the next reader for the writer.
		writer := start(t, zkr(t, s.ConnectString(), "lock", path, "--", "sh", "-c", forever))
		reader.signal(syscall.SIGTERM)
		require.Equal(t, exitSignal+15, reader.status())
		writer.pids()
		r = runZkr(t, s.ConnectString(), "lock", "--try", "--shared", path, "--", "true")
		require.Equal(t, exitBusy, r.status, r.stderr)
		writer.signal(syscall.SIGTERM)
		require.Equal(t, exitSignal+15, writer.status())
	})
}

func TestSignalsAndRevocationsReachTheCommand(t *testing.T) {
	notUnderNohup(t)
	signal := func(sig syscall.Signal) func(*process, *lock.Mutex, *recipestest.Link) {
		return func(p *process, _ *lock.Mutex, _ *recipestest.Link) { p.signal(sig) }
	}
	each(t, func(t *testing.T, s *recipestest.Server) {
		for name, c := range map[string]struct {
			do     func(*process, *lock.Mutex, *recipestest.Link)
			status int
		}{
			"SIGINT": {signal(syscall.SIGINT), 7}, "SIGTERM": {signal(syscall.SIGTERM), 7}, "SIGHUP": {signal(syscall.SIGHUP), 7},
			"SIGUSR1": {signal(syscall.SIGUSR1), 5},
			"revocation": {func(_ *process, m *lock.Mutex, _ *recipestest.Link) {
				line := suite.Must(t, m.Contenders)
				require.NoError(t, m.Revoke(suite.Lasting(t), line[0].Node))
			}, 7},
			"short break, which costs nothing": {func(p *process, _ *lock.Mutex, link *recipestest.Link) {
				again := link.Answered(recipestest.OpConnect, 1) // when the session has resumed
				suite.Blip(link)
				suite.Wait(t, again)
				p.signal(syscall.SIGUSR1)
			}, 5},
		} {
			path, link := s.Root(t)+"/lock", s.Link(t)
			const script = `trap 'exit 7' INT TERM HUP; trap 'exit 5' USR1; echo $$; while :; do sleep 0.05; done`
			p := start(t, zkr(t, network(t, s, link), "lock", "--timeout", long, path, "--", "sh", "-c", script))
			p.pids()
			c.do(p, lock.New(s.Client(t), path), link)
			assert.Equal(t, c.status, p.status(), name)
		}
	})
}

func TestSignalEndsAWait(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	lease := lockNow(t, s, path)
	p := start(t, zkr(t, s.ConnectString(), "lock", path, "--", "true"))
	awaitContenders(t, s, path, 2)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitSignal+15, p.status())
	awaitContenders(t, s, path, 1)
	require.NoError(t, lease.Unlock(suite.Lasting(t)))
}

// awaitContenders waits until so many contenders are in line.
func awaitContenders(t *testing.T, s *recipestest.Server, path string, n int) {
	t.Helper()
	c := s.Client(t)
	session := suite.Got(recipe.SessionOf(suite.Lasting(t), c))(t)
	require.NoError(t, session.WaitChildren(suite.Lasting(t), path, func(names []string) bool { return len(names) == n }))
}

func TestCommandUnderNohupOutlivesAHangUp(t *testing.T) {
	s := recipestest.Start(t)
	cmd := zkr(t, s.ConnectString(), "lock", s.Root(t)+"/lock", "--",
		"sh", "-c", `trap 'exit 5' USR1; echo $$; while :; do sleep 0.05; done`)
	// nohup ignores SIGHUP in the same way.
	cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`}, append([]string{cmd.Path}, cmd.Args[1:]...)...)
	cmd.Path = "/bin/sh"
	p := start(t, cmd)
	p.pids()
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGUSR1)
	assert.Equal(t, 5, p.status())
}

func TestWhatACommandLeavesBehindEndsBeforeTheLockIsGivenBack(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		p := start(t, zkr(t, s.ConnectString(), "lock", path, "--",
			"sh", "-c", `setsid sleep 1000 >/dev/null & sleep 1000 >/dev/null & echo $! $(pgrep -P $$ sleep)`))
		pids := p.pids()
		require.Zero(t, p.status())
		assert.Empty(t, running(pids))
	})
}

func TestKilledGuardTakesTheCommandAlong(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		p, pids := startFamily(t, s.ConnectString(), path, long)
		guard := p.guard(pids[0])
		name := suite.Got(os.ReadFile(fmt.Sprintf("/proc/%d/comm", guard)))(t)
		assert.Equal(t, "zkr-guard\n", string(name))
		require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
		assert.Equal(t, exitSignal+9, p.status())
		assert.Empty(t, running(pids))
	})
}

func TestCommandDiesWithBothItsParents(t *testing.T) {
	s := recipestest.Start(t)
	p, pids := startFamily(t, s.ConnectString(), s.Root(t)+"/lock", short)
	guard := p.guard(pids[0])
	// zkr is stopped and its guard is dead, so only the kernel can end the command.
	p.pause()
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	awaitEnd(t, pids[:1])
	for _, pid := range pids[1:] { // these are lost, as the documentation says
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

func TestCommandIsGoneBeforeItsLockIsGranted(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		for name, fault := range map[string]func(p *process, guard int, link *recipestest.Link){
			"zkr killed": func(p *process, _ int, _ *recipestest.Link) {
				require.NoError(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)) // its process group, in which it is alone
			},
			"zkr stopped": func(p *process, _ int, _ *recipestest.Link) { p.pause() },
			"guard stopped": func(_ *process, guard int, link *recipestest.Link) {
				require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
				link.Stall() // zkr itself must end the command in time
			},
			"cut":   func(_ *process, _ int, link *recipestest.Link) { link.Cut() },
			"stall": func(_ *process, _ int, link *recipestest.Link) { link.Stall() },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				path, link := s.Root(t)+"/lock", s.Link(t)
				p, pids := startFamily(t, network(t, s, link), path, short)
				fault(p, p.guard(pids[0]), link)
				requireGoneBeforeGrant(t, s, path, pids)
				if name != "zkr killed" {
					_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
					assert.Equal(t, exitLost, p.status())
				}
			})
		}
	})
}

func TestLossEndsZkrThoughNoServerAnswers(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	for name, args := range map[string][]string{
		"lock":      {"lock", root + "/lock"},
		"semaphore": {"semaphore", root + "/semaphore", "2"},
		"elect":     {"elect", root + "/election"},
		"join":      {"group", "join", root + "/group", "me"},
		"once":      {"once", root + "/once", "today"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := s.Link(t)
			p := start(t, zkr(t, network(t, s, link), append(args, "--timeout", short, "--", "sh", "-c", `echo $$; exec sleep 1000`)...))
			pids := p.pids()
			link.Stall()
			assert.Equal(t, exitLost, p.status())
			assert.Empty(t, running(pids))
		})
	}
}

func TestBrokenLockEndsTheCommand(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		p, pids := startFamily(t, s.ConnectString(), path, long)
		m := lock.New(s.Client(t), path)
		line := suite.Must(t, m.Contenders)
		assert.Contains(t, string(line[0].Data), `"program":"sh"`)
		require.NoError(t, m.Break(suite.Lasting(t), line[0].Node))
		assert.Equal(t, exitLost, p.status())
		assert.Empty(t, running(pids))
	})
}

func TestNodeSaysWhoHoldsAndSinceWhen(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	lease := lockNow(t, s, path)
	cmd := zkr(t, s.ConnectString(), "lock", "--label", "nightly", path, "--",
		"sh", "-c", `echo "$ZKR_AUTH|$ZKR_KEY"; trap : TERM; while :; do sleep 0.05; done`, "dump", "--password=hunter2")
	cmd.Env = append(cmd.Env, "ZKR_AUTH=digest:me:secret", "ZKR_KEY=outer")
	p := start(t, cmd)
	awaitContenders(t, s, path, 2)
	time.Sleep(2 * time.Millisecond) // the server counts in milliseconds, and the wait has to be seen
	require.NoError(t, lease.Unlock(suite.Lasting(t)))
	assert.Equal(t, "|", p.line(), "no credential, and nothing of a zkr around it, is inherited")

	// holder waits until the node says what ok looks for.
	me := s.Client(t, protocol.WithAuth("digest", []byte("me:secret")))
	holder := func(ok func(survey.Contender) bool) survey.Contender {
		for {
			found := suite.Got(survey.Look(suite.Lasting(t), me, path, survey.Limits{}))(t)
			if c := found.Contenders[0]; ok(c) {
				return c
			}
			time.Sleep(time.Millisecond)
		}
	}
	c := holder(func(c survey.Contender) bool { return !c.Held.IsZero() })
	assert.True(t, c.Held.After(c.Since), "it has waited")
	assert.Equal(t, "sh (nightly)", c.Owner.Program+" ("+c.Owner.Label+")")
	assert.NotContains(t, string(c.Data), "hunter2")

	// A revocation replaces the data, and zkr puts its own back.
	require.NoError(t, lock.New(me, path).Revoke(suite.Lasting(t), c.Node))
	c = holder(func(c survey.Contender) bool { return !c.Owner.AskedBack.IsZero() })
	assert.Equal(t, "sh", c.Owner.Program)
	assert.False(t, c.Held.IsZero())
	p.signal(syscall.SIGKILL)
}

func TestRunOfAOnceSaysSinceWhen(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/once"
	start(t, zkr(t, s.ConnectString(), "once", path, "key", "--", "sh", "-c", "echo $$; exec sleep 1000")).pids()
	c := client(t, s)
	suite.Soon(t, func() bool {
		p := suite.Got(survey.Look(suite.Lasting(t), c, path, survey.Limits{}))(t)
		return !p.Contenders[0].Held.IsZero()
	}, "since when")
}

func TestMemberNameIsTakenOnce(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/group"
	p := start(t, zkr(t, s.ConnectString(), "group", "join", path, "me", "--", "sh", "-c", `echo $$; exec sleep 1000`))
	p.pids()
	// The name is taken: a wait fails in time, and a longer wait gets it.
	timedOut(t, s, 100*time.Millisecond, "group", "join", path, "me", "--", "true")
	next := start(t, zkr(t, s.ConnectString(), "group", "join", "--wait", "10m", path, "me", "--", "true"))
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitSignal+15, p.status())
	assert.Zero(t, next.status())
}

func TestBarrierLetsCommandsInTogether(t *testing.T) {
	s := recipestest.Start(t)
	path, dir := s.Root(t)+"/barrier", t.TempDir()
	// Each command ends only once it has seen the other.
	script := func(me, other string) string {
		return "touch " + filepath.Join(dir, me) + "; until [ -e " + filepath.Join(dir, other) + " ]; do sleep 0.05; done"
	}
	a := start(t, zkr(t, s.ConnectString(), "barrier", "enter", path, "2", "--", "sh", "-c", script("a", "b")))
	b := start(t, zkr(t, s.ConnectString(), "barrier", "enter", path, "2", "--", "sh", "-c", script("b", "a")))
	assert.Zero(t, a.status())
	assert.Zero(t, b.status())

	timedOut(t, s, time.Second, "barrier", "enter", path, "2", "--", "true")
}

// The command is killed when --wait has passed, or ends by itself. What it has started keeps its
// output open.
func TestUpdateDoesNotWaitForWhatItsCommandHasLeft(t *testing.T) {
	s := recipestest.Start(t)
	fifo, path := t.TempDir()+"/fifo", s.Root(t)+"/v"
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	r := inProcess(t, s.ConnectString(), "", "value", "update", path, "--wait", "1s", "--", "sh", "-c", "cat "+fifo+" & wait")
	assert.Contains(t, outOfTime, r.status, r.stderr)
	succeed(t, s.ConnectString(), "value", "update", path, "--", "sh", "-c", "echo 7; cat "+fifo+" &")
	assert.Equal(t, "7\n", succeed(t, s.ConnectString(), "value", "get", path))
	end := suite.Got(os.OpenFile(fifo, os.O_RDWR, 0))(t)
	require.NoError(t, end.Close())
}
