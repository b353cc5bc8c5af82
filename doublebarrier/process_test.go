package doublebarrier_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// memberEnv makes the test binary run one member, as its value says.
const memberEnv = "ZKRECIPES_DOUBLEBARRIER_MEMBER"

type member struct {
	Servers, Path string
	N             int
}

// A report is what a member writes before it leaves, and again when it has left.
type report struct {
	Node                     string
	Members                  []string
	Token                    int64
	Entered, Departing, Left int64 // by the clock that all processes share
}

// runMember takes part in rounds until the standard input ends, which it does when the parent dies,
// too.
func runMember(config string) (status int) {
	var m member
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	suite.UntilStdinEnds(cancel)
	client, err := protocol.Connect(ctx, m.Servers, protocol.WithSessionTimeout(2*time.Second))
	if err != nil {
		return 0
	}
	defer client.Close()

	b := doublebarrier.New(client, m.Path, m.N, doublebarrier.WithWaiting())
	out := json.NewEncoder(os.Stdout)
	for ctx.Err() == nil {
		e, err := b.Enter(ctx)
		if err != nil {
			continue
		}

		r := report{Node: e.Node(), Members: e.Members(), Token: e.Token(), Entered: time.Now().UnixNano()}
		out.Encode(r)
		r.Departing = time.Now().UnixNano()
		if e.Leave(ctx) == nil {
			r.Left = time.Now().UnixNano()
			out.Encode(r)
		}
	}
	return 0
}

func TestProcessesThatAreKilled(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const n, crew, rounds, kills = 3, 4, 40, 8
		path := srv.Root(t) + "/b"
		config := member{srv.ConnectString(), path, n}

		var mu sync.Mutex // protects what follows
		reports := make(map[string]report)
		gates := make(map[int64][]string)
		progress := make(chan struct{}, 1)
		listen := func(line []byte) {
			var r report
			if json.Unmarshal(line, &r) != nil {
				return // it was killed while it wrote
			}
			mu.Lock()
			reports[r.Node] = r
			gates[r.Token] = r.Members
			mu.Unlock()
			select {
			case progress <- struct{}{}:
			default:
			}
		}
		start := func() *suite.Process { return suite.StartProcess(t, memberEnv, config, listen) }

		var all []*suite.Process
		for range crew {
			all = append(all, start())
		}

		killed := 0
		for done := 0; done < rounds; {
			select {
			case <-progress:
			case <-time.After(2 * suite.Limit):
				require.FailNow(t, "no progress", "after %d rounds and %d kills", done, killed)
			}
			mu.Lock()
			done = len(gates)
			mu.Unlock()
			if killed < kills && done > killed*rounds/kills {
				i := killed % crew
				all[i].Kill()
				all[i] = start()
				killed++
			}
		}

		for _, p := range all {
			p.End(t)
		}

		counted := make(map[string]bool)
		for _, members := range gates {
			require.Len(t, members, n)
			for _, m := range members {
				require.False(t, counted[m], "%s was counted twice", m)
				counted[m] = true
			}
		}

		for _, r := range reports {
			require.Equal(t, gates[r.Token], r.Members)
			require.Contains(t, r.Members, r.Node)
			for _, other := range reports {
				if other.Token < r.Token && other.Left > 0 {
					require.GreaterOrEqual(t, r.Entered, other.Departing, "%s lapped %s", r.Node, other.Node)
				}
				if other.Token == r.Token && r.Left > 0 && other.Left > 0 {
					require.GreaterOrEqual(t, r.Left, other.Departing, "%s left before %s", r.Node, other.Node)
				}
			}
		}
		t.Logf("%d rounds, %d kills", len(gates), killed)
	})
}
