package doublebarrier_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// work returns what a member has asked of the server. It leaves out the keeper of its session, and
// the guard of its grant.
func work(l *recipestest.Link) (requests map[recipestest.Op]int, events int) {
	requests = make(map[recipestest.Op]int)
	for _, op := range []recipestest.Op{
		recipestest.OpCreate, recipestest.OpCreateContainer, recipestest.OpExists, recipestest.OpGetData,
		recipestest.OpGetChildren, recipestest.OpMulti,
	} {
		requests[op] = l.Count(op)
	}
	return requests, l.Events()
}

// Each member asks for the same, whatever n is. The members come one after the other, and leave one
// after the other, once the one before has seen how many there are.
func TestEnteringAndLeavingCostEachMemberAConstant(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for _, n := range []int{4, 16, 32} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				path := srv.Root(t) + "/b"
				watcher := srv.Client(t)
				persistent(t, watcher, path)
				ctx := patient(t)

				var links []*recipestest.Link
				var cs []*protocol.Client
				for range n {
					l := srv.Link(t)
					links, cs = append(links, l), append(cs, l.Client(t))
				}

				var all []*entering
				for i, c := range cs {
					all = append(all, enter(ctx, doublebarrier.New(c, path, n)))
					if i < n-1 {
						joined(t, watcher, path, i+1)
						<-links[i].Answered(recipestest.OpGetData, 2) // the gate, which is not there, and itself
					}
				}
				for _, e := range all {
					e.must(t)
				}

				most, sum := make(map[recipestest.Op]int), make(map[recipestest.Op]int)
				note := func(from []map[recipestest.Op]int) (now []map[recipestest.Op]int) {
					clear(most)
					clear(sum)
					for i, l := range links {
						w, _ := work(l)
						for op, k := range w {
							if from != nil {
								k -= from[i][op]
							}
							most[op], sum[op] = max(most[op], k), sum[op]+k
						}
						now = append(now, w)
					}
					t.Logf("n=%d: most of one %v, all together %v", n, most, sum)
					return now
				}

				entered := note(nil)
				require.Equal(t, n, sum[recipestest.OpCreate], "a member each")
				const few = 12 // for any n
				require.LessOrEqual(t, sum[recipestest.OpGetChildren], few, "listings by the last member, and by one that woke by itself")
				require.LessOrEqual(t, sum[recipestest.OpMulti], few, "one gate")
				require.LessOrEqual(t, most[recipestest.OpGetChildren], 2)
				require.LessOrEqual(t, most[recipestest.OpMulti], 2)
				require.LessOrEqual(t, most[recipestest.OpExists], 2, "how many are in")
				require.LessOrEqual(t, most[recipestest.OpGetData], 5, "the gate, itself, itself again, the gate, the guard")

				var leaving group
				began := time.Now()
				for i, e := range all {
					looked := links[i].Answered(recipestest.OpExists, entered[i][recipestest.OpExists]+1)
					leaving.Go(func() error { return e.entry.Leave(ctx) })
					joined(t, watcher, path, n-1-i)
					<-looked // how many are left
				}
				require.NoError(t, leaving.Wait())
				note(entered)
				// Each waiter looks at one of the others every third of a session timeout.
				looks := int(3 * time.Since(began) / session(t, watcher).Timeout())
				require.LessOrEqual(t, sum[recipestest.OpGetChildren], few+n*looks, "by the last few, if any")
				require.LessOrEqual(t, most[recipestest.OpMulti], 1, "the gate's end")
				require.LessOrEqual(t, sum[recipestest.OpMulti], few+n*looks)
				require.LessOrEqual(t, most[recipestest.OpExists], 3+looks, "how many are left, and one of them now and then")
				require.LessOrEqual(t, most[recipestest.OpGetData], 10)
				for _, l := range links {
					require.LessOrEqual(t, l.Events(), 8)
				}
				empty(t, watcher, path)
			})
		}
	})
}
