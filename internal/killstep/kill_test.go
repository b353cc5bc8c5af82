package killstep_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

var update = flag.Bool("update", false, "write testdata/left.txt and its table in docs/failure.md anew")

// maxSteps is more than any operation has packets.
const maxSteps = 100

func TestProcessKilledAtEachPacketLeavesWhatIsDocumented(t *testing.T) {
	var mu sync.Mutex // protects found
	found := make(map[string][]string)
	t.Run("operations", func(t *testing.T) {
		for _, o := range operations() {
			t.Run(strings.ReplaceAll(o.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				all := make(map[string]bool)
				for _, way := range []direction{toServer, toClient} {
					for n, killed := 1, true; killed; n++ {
						require.Less(t, n, maxSteps)
						var left []string
						left, killed = killAt(t, newServer(t), o, way, n)
						for _, l := range left {
							all[general(l)] = true
						}
					}
				}
				mu.Lock()
				defer mu.Unlock()
				found[o.name] = slices.Sorted(maps.Keys(all))
			})
		}
	})
	if !t.Failed() && len(found) == len(operations()) { // -run may have left some out
		compare(t, found)
	}
}

// newServer returns a server that deletes no containers unless it is asked to.
func newServer(t *testing.T) *recipestest.Server {
	return recipestest.Start(t, recipestest.WithConfig(embedded.Config{
		MaxSessionTimeout: 2 * sessionTimeout, ContainerInterval: time.Hour,
	}))
}

// A real server has other threads and other timing, and its containers go by themselves.
func TestProcessKilledOnARealServerBlocksNoOther(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	for _, name := range []string{
		mutexes.name + ": leave, a waiter behind", "queue: acknowledge", "once: do", "doublebarrier: enter, another comes first",
	} {
		o := find(name)
		for n, killed := 1, true; killed; n++ {
			require.Less(t, n, maxSteps)
			_, killed = killAt(t, srv, o, toServer, n)
		}
	}
}

// killAt lets a process carry out an operation until packet number n has passed, and kills it then.
// It returns what is left once its session has ended, and reports whether the operation had so many
// packets. Otherwise the process was killed after the operation.
func killAt(t *testing.T, srv *recipestest.Server, o operation, way direction, n int) (left []string, killed bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s: killed after packet %d %v", o.name, n, way)
		}
	}()
	s := &scene{T: t, Server: srv, path: srv.Root(t) + "/x", a: srv.Client(t), b: srv.Client(t), observer: srv.Client(t), ctx: suite.Lasting(t)}
	hint := ""
	if o.before != nil {
		hint = o.before(s)
	}

	relay := newRelay(t, srv)
	reports := make(chan report, 2)
	process := suite.StartProcess(t, childEnv, task{o.name, relay.listener.Addr().String(), path.Dir(s.path), hint}, func(line []byte) {
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			r.Error = string(line)
		}
		reports <- r
	})
	ready := suite.Wait(t, reports)
	require.Empty(t, ready.Error)
	if o.between != nil {
		o.between(s)
	}

	before := nodes(s)
	relay.arm(way, n, process.Kill)
	s.do(process.Tell("go"))
	meanwhile, stop := context.WithCancel(s.ctx)
	var helping sync.WaitGroup
	if o.meanwhile != nil {
		helping.Go(func() { o.meanwhile(meanwhile, s) })
	}

	select {
	case <-relay.fatal:
		killed = true
	case r := <-reports:
		if relay.disarm() {
			require.Empty(t, r.Error)
			process.Kill()
		} else {
			suite.Wait(t, relay.fatal)
			killed = true
		}
		s.over = r.Over && r.Error == ""
	}
	stop()
	helping.Wait()
	suite.Expire(srv, ready.Session)
	left = difference(before, nodes(s))

	o.after(s)
	s.release()
	suite.Close(t, s.a, s.b)
	removed(s, o, left)
	return left, killed
}

// removed shows that what was left is gone, after another process has used the recipe, unless it is
// known to stay for longer.
func removed(s *scene, o operation, left []string) {
	s.Helper()
	if e := s.Embedded(); e != nil {
		for range 4 { // a container may have been the last child of another one
			e.ReapContainers()
		}
	}
	now := nodes(s)
	for _, l := range left {
		r, ok := remainderOf(o, general(l))
		require.True(s, ok, "%s: %s is left, and no process removes it", o.name, general(l))
		if !r.stays && s.Embedded() != nil {
			require.NotContains(s, now, l, "removed by %s", r.remover)
		}
	}
}

// nodes returns the nodes at the path of the operation, beside it and below it, that are not
// ephemeral. Those that are belong to processes that live.
func nodes(s *scene) []string {
	s.Helper()
	session := suite.Session(s, s.observer)
	suite.CatchUp(s, s.observer)
	root := path.Dir(s.path)
	var all []string
	var walk func(dir string)
	walk = func(dir string) {
		children, stat, err := session.Children(s.ctx, dir)
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		s.do(err)
		if stat.EphemeralOwner == 0 && dir != root {
			all = append(all, strings.TrimPrefix(dir, root))
		}
		for _, c := range children {
			walk(dir + "/" + c)
		}
	}
	walk(root)
	return all
}

// difference returns the nodes that are new.
func difference(before, after []string) []string {
	return slices.DeleteFunc(after, func(n string) bool { return slices.Contains(before, n) })
}

var (
	ownerName = regexp.MustCompile(`[0-9a-f]{16}-[0-9a-f]{8}-`)
	tokenName = regexp.MustCompile(`/[0-9a-f]{16}-`)
	itemName  = regexp.MustCompile(`/item-.*$`)
	sequence  = regexp.MustCompile(`[0-9]{10}`)
)

// general returns a path with words in place of what is different each time.
func general(node string) string {
	node = ownerName.ReplaceAllString(node, "<owner>-")
	node = tokenName.ReplaceAllString(node, "/<token>-")
	node = itemName.ReplaceAllString(node, "/item-<notes>")
	node = sequence.ReplaceAllString(node, "<sequence>")
	return "<path>" + strings.TrimPrefix(node, "/x")
}
