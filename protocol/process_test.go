package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// lasting is for a server whose sessions outlast a busy machine.
var lasting = recipestest.WithConfig(embedded.Config{MaxSessionTimeout: suite.Limit})

// TestLeaseTakesLittleMemory measures a process that has the client and not the server.
func TestLeaseTakesLittleMemory(t *testing.T) {
	t.Parallel()
	suite.SkipShort(t)
	self := suite.Got(os.Executable())(t)
	holder := exec.Command(self)
	holder.Env = append(os.Environ(), holderEnv+"="+recipestest.Start(t, lasting).ConnectString())
	out, err := holder.Output()
	require.NoError(t, err, "%s", out)
	each := suite.Got(strconv.Atoi(string(out)))(t)
	t.Logf("%d bytes for each lease", each)
	require.Less(t, each, 2048)
}

// holderEnv has the servers for a test binary that holds locks and prints how many bytes each
// takes.
const holderEnv = "ZKRECIPES_TEST_HOLDER"

func holderMain(servers string) error {
	const n = 3000
	ctx, cancel := context.WithTimeout(context.Background(), 5*suite.Limit)
	defer cancel()
	c, err := protocol.Connect(ctx, servers, protocol.WithSessionTimeout(suite.Limit))
	if err != nil {
		return err
	}
	defer c.Close()
	grants, before := make([]*recipe.Grant, n+1), 0
	for i := range grants {
		if grants[i], err = suite.LineAt(c, lockAt("/holder", i)).Enter(ctx, suite.Request); err != nil {
			return err
		}
		if i == 0 {
			before = memory()
		}
	}
	watched := fmt.Sprintf("Total watches:%d", n+1)
	for answer := ""; !strings.Contains(answer, watched); time.Sleep(time.Millisecond) {
		answer, err = watchesOn(net.DialTimeout, servers)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return fmt.Errorf("waits for %q, has %q: %w", watched, answer, err)
		}
	}
	// On a machine that computes, goroutines of work (and their stacks) end late. What leases take
	// stays.
	after := memory()
	for range 10 {
		time.Sleep(100 * time.Millisecond)
		after = min(after, memory())
	}
	fmt.Print((after - before) / n)
	runtime.KeepAlive(grants)
	return nil
}

// memory returns how many bytes of heap and stacks are in use.
func memory() int {
	runtime.GC()
	runtime.GC() // sweeps the garbage that the first one has found
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

func TestProcessIsALineOfJSON(t *testing.T) {
	p := protocol.Process{Host: "web-3", PID: 4711, Program: "a && b"}
	require.Equal(t, `{"zkrecipes":1,"host":"web-3","pid":4711,"program":"a && b"}`, string(p.Data()))
	require.Equal(t, "a && b[4711] on web-3", p.String())

	read, ok := protocol.ParseProcess(p.Data())
	require.True(t, ok)
	require.Equal(t, p, read)
	_, ok = protocol.ParseProcess([]byte(`{"zkrecipes":2,"host":"web-3","zone":"a"}`))
	require.True(t, ok, "a later version")
	for _, other := range []string{"", "192.0.2.1", "null", "[]", `{"host":"web-3"}`, `{"zkrecipes":1,"pid":"x"}`, "\xff"} {
		_, ok := protocol.ParseProcess([]byte(other))
		require.False(t, ok, other)
	}
}

func TestDataOfAProcessIsPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("\x1b\x00\x7f\u009b\u202e\u2028\n\"\\a"))),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		p := protocol.Process{Host: text.Draw(t, "host"), PID: rapid.Int().Draw(t, "pid"), Program: text.Draw(t, "program")}
		for _, shown := range []string{string(p.Data()), p.String()} {
			if !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q", shown)
			}
		}
		if _, ok := protocol.ParseProcess(p.Data()); !ok {
			t.Fatalf("%q is not read", p.Data())
		}
	})
}

func FuzzParseProcess(f *testing.F) {
	f.Add([]byte(`{"zkrecipes":1,"host":"web-3","pid":4711,"program":"reports"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, ok := protocol.ParseProcess(data); ok {
			again, ok := protocol.ParseProcess(p.Data())
			require.True(t, ok)
			require.Equal(t, p.PID, again.PID)
		}
	})
}
