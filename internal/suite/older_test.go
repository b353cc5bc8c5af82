package suite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
	"github.com/zkrecipes/zkrecipes/value"
)

// older has the nodes of a process of v0.1. Each line is a path below the recipe's, with its data
// after a space. The ephemeral nodes of the process have its OWNER in their names (but for the
// member of a group). A name that ends in a hyphen gets a sequence number.
//
// Beside these nodes, a process of this version calls sees, which returns want at once. Then it
// calls waits (if there is such a call), which returns once the older process has ended.
//
// An entry never changes. If a later version writes other nodes, it gets entries of its own.
var older = []struct {
	name, nodes string
	sees        func(ctx context.Context, c *protocol.Client, path string) (any, error)
	want        string
	waits       verbAt
}{
	{"lock", `/OWNER-lock- {"zkrecipes":1,"host":"web-3","pid":4711,"program":"reports"}`,
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			line, err := lock.New(c, path).Contenders(ctx)
			if err != nil || len(line) != 1 {
				return len(line), err
			}
			p, _ := protocol.ParseProcess(line[0].Data)
			return fmt.Sprint(p, " ", line[0].Holds, " ", line[0].Lingers), nil
		}, "reports[4711] on web-3 true false", acquire["mutex"].keep},
	{"lock that lingers", "/OWNER-linger-lock-",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			line, err := lock.New(c, path).Contenders(ctx)
			if err != nil || len(line) != 1 {
				return len(line), err
			}
			return line[0].Lingers, nil
		}, "true", acquire["mutex"].keep},
	{"writer", "/OWNER-write-",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			_, err := rwlock.New(c, path).TryRLock(ctx)
			return errors.Is(err, rwlock.ErrLocked), nil
		}, "true", acquire["reader"].keep},
	{"reader", "/OWNER-read-",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			l, err := rwlock.New(c, path).TryRLock(ctx)
			if err != nil {
				return nil, err
			}
			return nil, l.Unlock(ctx)
		}, "<nil>", acquire["writer"].keep},
	{"semaphore", " 1\n/OWNER-permit-",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			return semaphore.New(c, path, 7).Permits(ctx)
		}, "1", func(ctx context.Context, c *protocol.Client, path string) error {
			return suite.Err(semaphore.New(c, path, 7).Acquire(ctx))
		}},
	{"election", "/OWNER-lock- value",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			leader, err := election.New(c, path).Leader(ctx)
			return string(leader.Value), err
		}, "value", acquire["term"].keep},
	{"group", "/name data",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			peers, err := group.New(c, path).Members(ctx)
			if err != nil || len(peers) != 1 {
				return len(peers), err
			}
			return peers[0].Name + string(peers[0].Data), nil
		}, "namedata", joining},
	{"group that knows identities", "/name data\n-identities/OWNER-name pod",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			return nil, suite.Err(group.New(c, path, group.WithIdentity("pod")).TryJoin(ctx, "name", nil))
		}, "<nil>", nil},
	{"group that shares items", "/name\n-items/item/OWNER-lock- name",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			_, err := lock.New(c, path+"-items/item").TryLock(ctx)
			return errors.Is(err, lock.ErrLocked), nil
		}, "true", func(ctx context.Context, c *protocol.Client, path string) error {
			m, err := group.New(c, path).Join(ctx, "another name", nil)
			if err != nil {
				return err
			}
			sharing, done := context.WithCancel(ctx)
			err = m.Share(sharing, []string{"item"}, func(context.Context, *group.Assignment) error {
				done()
				return nil
			})
			return errors.Join(err, m.Leave(ctx))
		}},
	{"once of a running key", "/OWNER-a%2Fkey-run-\n/done/a%2Fkey {}\n/done/a%2Fkey/open",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			return once.New(c, path).Done(ctx, "a/key")
		}, "false", runKey},
	{"once of a key that is done", `/done/a%2Fkey {"done":"2000-01-01T00:00:02Z","host":"web-3","pid":4711,"node":"OWNER-a%2Fkey-run-0000000000","token":5}`,
		func(ctx context.Context, c *protocol.Client, path string) (all any, err error) {
			for key, err := range once.New(c, path).Keys(ctx) {
				if err != nil {
					return nil, err
				}
				all = fmt.Sprint(key.Name, " ", key.Host, " ", key.PID, " ", key.Token, " ", key.Done.Year())
			}
			ran, err := once.New(c, path).Do(ctx, "a/key", func(context.Context, *once.Run) error { return nil })
			return fmt.Sprint(all, " ", ran), err
		}, "a/key web-3 4711 5 2000 false", nil},
	{"queue", `/qn- a
/entry-007- b
/entry-100-0000000009 c
/item-qn-0000000008-0000000004 d
/zkrecipes/returned/qn-0000000008 {"id":"qn-0000000008","since":946684800000,"attempts":1,"returns":1,"reason":"why"}\n
/zkrecipes/delayed/000014445306/946684800000,later-946684800000-0000000000 {"since":946684700000}\ne
/item-dead-1-0000000005 f
/zkrecipes/returned/dead-1 {"id":"dead-1","origin":{"queue":"/q","id":"qn-0000000007","attempts":2},"reason":"broken"}\n`,
		func(ctx context.Context, c *protocol.Client, path string) (all any, err error) {
			q, text := queue.New(c, path, queue.WithPriorities()), ""
			for range 6 {
				it, err := q.Reserve(ctx)
				if err != nil {
					return text, err
				}
				text += fmt.Sprintf("%s %s %d %s%s; ", it.Data(), it.ID(), it.Attempt(), it.Reason(), it.Origin())
				if err := it.Ack(ctx); err != nil {
					return text, err
				}
			}
			return text, nil
		}, "b entry-007-0000000002 1 ; a qn-0000000001 1 ; d qn-0000000008 2 why; " +
			"f dead-1 1 broken/q/qn-0000000007 after 2 attempts: broken; " +
			"e later-946684800000-0000000000 1 ; c entry-100-0000000009 1 ; ", nil},
	{"queue of which an entry is reserved", `/zkrecipes/consumers/OWNER 1
/zkrecipes/held/OWNER
/zkrecipes/held/OWNER/1,qn-0000000001 {"id":"qn-0000000001","node":"qn-0000000001","since":946684800000,"attempts":1}\ndata`,
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			_, err := queue.New(c, path).TryReserve(ctx)
			return errors.Is(err, queue.ErrEmpty), nil
		}, "true", func(ctx context.Context, c *protocol.Client, path string) error {
			it, err := queue.New(c, path).Reserve(ctx)
			if err == nil && (it.Attempt() != 2 || string(it.Data()) != "data") {
				err = fmt.Errorf("the item is %q, attempt %d", it.Data(), it.Attempt())
			}
			return err
		}},
	{"doublebarrier", "/process zkrecipes/doublebarrier n=2 from=0 rounds=0\\n\n/process/OWNER-1-of-2-member-",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			e, err := doublebarrier.New(c, path, 2).Enter(ctx)
			if err != nil {
				return nil, err
			}
			return len(e.Members()), nil
		}, "2", nil},
	{"value", " data",
		func(ctx context.Context, c *protocol.Client, path string) (any, error) {
			state, err := value.New(c, path).Update(ctx, func(old value.State) ([]byte, error) {
				return append(old.Data, " and more"...), nil
			})
			return string(state.Data), err
		}, "data and more", nil},
}

func TestProcessesOfAnOlderVersionAreUnderstood(t *testing.T) {
	for _, o := range older {
		suite.Run(t, o.name, func(t *testing.T, srv *recipestest.Server) {
			path := srv.Root(t) + "/at"
			process, c := srv.Conn(t), srv.Client(t)
			leaveNodes(t, process, path, o.nodes)

			saw := suite.Got(o.sees(t.Context(), c, path))(t)
			require.Equal(t, o.want, fmt.Sprint(saw))
			if o.waits != nil {
				waits := suite.Later(func() error { return o.waits(t.Context(), c, path) })
				time.Sleep(time.Minute)
				require.Empty(t, waits)
				process.Close()
				require.NoError(t, suite.Wait(t, waits))
			}

			process.Close()
			suite.Close(t, c)
		})
	}
}

// newer has holders of this version. The contender of a process of v0.1 that comes behind one has
// the node with this name, and then a contender of this version calls next.
var newer = []struct {
	name string
	hold acquiring
	node string
	next verbAt
}{
	{"lock", acquire["mutex"], "OWNER-lock-", acquire["mutex"].keep},
	{"lock that lingers", lingering, "OWNER-lock-", acquire["mutex"].keep},
	{"lock before one that lingers", acquire["mutex"], "OWNER-linger-lock-", acquire["mutex"].keep},
	{"writer", acquire["writer"], "OWNER-read-", acquire["writer"].keep},
	{"reader", acquire["reader"], "OWNER-write-", acquire["reader"].keep},
	{"semaphore", onlyPermit, "OWNER-permit-", acquiring(onlyPermit).keep},
	{"election", acquire["term"], "OWNER-lock-", acquire["term"].keep},
	{"once", running, "OWNER-a%2Fkey-run-", runKey},
}

// The older process watches the holder's node, is next when that goes, and keeps its place.
func TestProcessesOfAnOlderVersionWaitTheirTurn(t *testing.T) {
	for _, n := range newer {
		suite.Run(t, n.name, func(t *testing.T, srv *recipestest.Server) {
			path := srv.Root(t) + "/at"
			process, c, later := srv.Conn(t), srv.Client(t), srv.Client(t)
			release := suite.Got(n.hold(t.Context(), c, path))(t)
			held := contenders(t, c, path)
			require.Len(t, held, 1)
			gone := suite.WatchAt(t, process.ExistsW, path+"/"+held[0])
			leaveNodes(t, process, path, "/"+n.node)

			next := suite.Later(func() error { return n.next(t.Context(), later, path) })
			time.Sleep(time.Minute)
			require.Contains(t, contenders(t, c, path), held[0])
			require.Empty(t, gone)
			require.Empty(t, next)

			require.NoError(t, release(t.Context()))
			synctest.Wait()
			require.Equal(t, zk.EventNodeDeleted, suite.Wait(t, gone).Type)
			time.Sleep(time.Minute)
			require.Empty(t, next, "the older process is before it")
			process.Close()
			require.NoError(t, suite.Wait(t, next))
			suite.Close(t, later)
		})
	}
}

// contenders returns the nodes in line.
func contenders(t *testing.T, c *protocol.Client, path string) []string {
	return slices.DeleteFunc(suite.Children(t, c, path), func(child string) bool {
		_, _, ok := recipe.ParseOwner(child)
		return !ok
	})
}

// leaveNodes creates the nodes of a process in one transaction, and before that the nodes above.
func leaveNodes(t *testing.T, process *zk.Conn, path, nodes string) {
	owner := fmt.Sprintf("%016x-00000000", process.SessionID())
	acl := zk.WorldACL(zk.PermAll)
	var ops []any
	listed := make(map[string]bool)
	for line := range strings.SplitSeq(nodes, "\n") {
		name, data, _ := strings.Cut(line, " ")
		create := &zk.CreateRequest{
			Path: strings.ReplaceAll(path+name, "OWNER", owner), Data: []byte(strings.ReplaceAll(data, `\n`, "\n")), Acl: acl,
		}
		if strings.Contains(name, "/OWNER") && !strings.Contains(name, "/held/") || name == "/name" {
			create.Flags |= zk.FlagEphemeral
		}
		if strings.HasSuffix(name, "-") {
			create.Flags |= zk.FlagSequence
		}
		ops, listed[create.Path] = append(ops, create), true

		for i, letter := range create.Path {
			if above := create.Path[:i]; i > 0 && letter == '/' && !listed[above] {
				process.Create(above, nil, 0, acl) // it can exist
			}
		}
	}

	suite.Got(process.Multi(ops...))(t)
}
