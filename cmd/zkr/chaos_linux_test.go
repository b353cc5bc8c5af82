package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An entry is a line "begin" and a line "end" with the name of a run. In between the run reads a
// counter, and writes it with one more to another file. A run that is killed may leave any of that
// undone, but no other run may come in between, and none may go on after the next one has begun.
const appendEntry = `
	echo "begin $NAME" >> log
	n=$(cat counter)
	sleep 0.0$(($$ % 10))
	echo $((n + 1)) > new.$NAME && mv new.$NAME counter
	echo "end $NAME $((n + 1))" >> log
	echo done`

// TestTenProcessesWriteOneFile lets ten zkr at a time write one file, and kills some of them.
func TestTenProcessesWriteOneFile(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		t.Parallel()
		path, dir := s.Root(t)+"/lock", t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "counter"), []byte("0\n"), 0o600))
		runs, kills := 4, 3
		if testing.Short() {
			runs, kills = 2, 1
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		victims := make(map[string]bool)
		for len(victims) < kills {
			victims[fmt.Sprintf("%d-%d", random.IntN(10), random.IntN(runs))] = true
		}

		// A victim is killed a moment after it has begun, wherever that is.
		var mutex sync.Mutex
		completed := make(map[string]bool)
		var wait sync.WaitGroup
		for writer := range 10 {
			wait.Go(func() {
				for run := range runs {
					name := fmt.Sprintf("%d-%d", writer, run)
					cmd := zkr(t, s.ConnectString(), "lock", "--timeout", "6s", "--wait", "10m", path, "--", "sh", "-c", appendEntry)
					cmd.Dir = dir
					cmd.Env = append(cmd.Env, "NAME="+name)
					var out strings.Builder
					cmd.Stdout = &out
					if !assert.NoError(t, cmd.Start()) {
						return
					}
					ended := suite.Later(cmd.Wait)
					if victims[name] {
						// The run can end first, because it can lose its session.
						for content := ""; !strings.Contains(content, "begin "+name+"\n") && len(ended) == 0; time.Sleep(time.Millisecond) {
							bytes, err := os.ReadFile(filepath.Join(dir, "log"))
							if err == nil {
								content = string(bytes)
							}
						}
						_ = cmd.Process.Signal(syscall.SIGKILL)
					}
					err := <-ended
					if lost := cmd.ProcessState.ExitCode() == exitLost; err != nil && !lost && !victims[name] {
						t.Errorf("run %s: %v", name, err) // a session may be lost on a busy machine
					}
					mutex.Lock()
					completed[name] = err == nil
					mutex.Unlock()
				}
			})
		}
		wait.Wait()
		checkLog(t, filepath.Join(dir, "log"), completed)
	})
}

// checkLog fails if an entry is lost, or comes in between another one.
func checkLog(t *testing.T, file string, completed map[string]bool) {
	t.Helper()
	content := suite.Got(os.ReadFile(file))(t)
	ended := make(map[string]bool)
	current, count := "", 0
	// Entries must be whole and in one order, and counters must grow.
	for line := range strings.Lines(string(content)) {
		var name string
		var n int
		if _, err := fmt.Sscanf(line, "begin %s\n", &name); err == nil {
			current = name
			continue
		}
		require.NoError(t, suite.Err(fmt.Sscanf(line, "end %s %d\n", &name, &n)), "a torn line: %q", line)
		require.Equal(t, current, name, "an end in the entry of another run:\n%s", content)
		require.Greater(t, n, count, "a counter that was read before another run has written it:\n%s", content)
		count = n
		ended[name] = true
	}
	for name, done := range completed {
		assert.True(t, !done || ended[name], "the entry of run %s is lost", name)
	}
}
