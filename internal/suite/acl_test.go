package suite_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// uses make each recipe create all its kinds of nodes. Two contenders at a time add a contended
// release.
var uses = map[string]func(t *testing.T, c *protocol.Client, path string, link *recipestest.Link){
	"lock": func(t *testing.T, c *protocol.Client, path string, link *recipestest.Link) {
		for _, m := range []*lock.Mutex{lock.New(c, path+"/mutex"), lock.New(c, path+"/mutex")} {
			inTurns(t, link, func(ctx context.Context) (func(context.Context) error, error) {
				l, err := m.Lock(ctx)
				if err != nil {
					return nil, err
				}
				return l.Unlock, nil
			})
		}

		require.NoError(t, lock.NewSimple(c, path+"/simple").Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }))
	},

	"rwlock": func(t *testing.T, c *protocol.Client, path string, link *recipestest.Link) {
		for _, s := range []rwlock.Spelling{rwlock.Native, rwlock.Curator, rwlock.Kazoo} {
			m := rwlock.New(c, fmt.Sprintf("%s/%d", path, s), rwlock.WithSpelling(s))
			inTurns(t, link, func(ctx context.Context) (func(context.Context) error, error) {
				l, err := m.Lock(ctx)
				if err != nil {
					return nil, err
				}

				if s != rwlock.Native {
					return l.Unlock, nil
				}

				if l, err = l.Downgrade(ctx); err != nil {
					return nil, err
				}

				return l.Unlock, nil
			})
			l, err := m.RLock(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Unlock(t.Context()))
		}
	},

	"election": func(t *testing.T, c *protocol.Client, path string, link *recipestest.Link) {
		e := election.New(c, path)
		inTurns(t, link, func(ctx context.Context) (func(context.Context) error, error) {
			term, err := e.Campaign(ctx, []byte("x"))
			if err != nil {
				return nil, err
			}
			return term.Resign, nil
		})
	},
	"group": func(t *testing.T, c *protocol.Client, path string, _ *recipestest.Link) {
		g := group.New(c, path)
		m, err := g.Join(t.Context(), "a", nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		err = group.Share(ctx, g, m, []string{"x"}, func(context.Context, string) error { cancel(); return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, m.Leave(t.Context()))
	},
	"semaphore": func(t *testing.T, c *protocol.Client, path string, link *recipestest.Link) {
		s := semaphore.New(c, path, 2)
		for range 2 {
			inTurns(t, link, func(ctx context.Context) (func(context.Context) error, error) {
				p, err := s.Acquire(ctx)
				if err != nil {
					return nil, err
				}
				return p.Release, nil
			})
			require.NoError(t, s.Resize(t.Context(), 1))
		}
	},
	"once": func(t *testing.T, c *protocol.Client, path string, link *recipestest.Link) {
		o := once.New(c, path)
		for _, key := range []string{"a", "b"} {
			link.LoseReply(recipestest.OpMulti, 1)
			_, err := o.Do(t.Context(), key, func(context.Context, int64) error { return nil })
			require.NoError(t, err)
		}
	},
	"barrier": func(t *testing.T, c *protocol.Client, path string, link *recipestest.Link) {
		for _, b := range []*barrier.Barrier{barrier.New(c, path+"/a"), barrier.New(c, path+"/b", barrier.WithEphemeral())} {
			require.NoError(t, b.Set(t.Context()))
			link.LoseReply(recipestest.OpDelete, 1)
			require.NoError(t, b.Remove(t.Context()))
		}
	},

	"doublebarrier": func(t *testing.T, c *protocol.Client, path string, _ *recipestest.Link) {
		var both suite.Group
		for range 2 {
			both.Go(func() error {
				return doublebarrier.New(c, path, 2).Do(t.Context(), func(context.Context) error { return nil })
			})
		}
		require.NoError(t, both.Wait())
	},

	"queue": func(t *testing.T, c *protocol.Client, path string, link *recipestest.Link) {
		ctx := t.Context()
		q := queue.New(c, path+"/q", queue.WithDeadLetter(queue.New(c, path+"/dead"), 1))
		for range 3 { // each leaves a receipt
			link.LoseReply(recipestest.OpMulti, 1)
			_, err := q.Offer(ctx, []byte("x"))
			require.NoError(t, err)
		}

		_, err := q.OfferAll(ctx, [][]byte{[]byte("a"), []byte("b")})
		require.NoError(t, err)
		_, err = q.Take(ctx)
		require.NoError(t, err)
		for range 2 {
			item, err := q.Reserve(ctx)
			require.NoError(t, err)
			require.NoError(t, item.Nack(ctx)) // to the dead letters
			item, err = q.Reserve(ctx)
			require.NoError(t, err)
			require.NoError(t, item.Ack(ctx))
		}
	},
}

// inTurns makes two contenders acquire, the second one while the first one holds.
func inTurns(t *testing.T, link *recipestest.Link, acquire func(context.Context) (release func(context.Context) error, err error)) {
	t.Helper()
	release, err := acquire(t.Context())
	require.NoError(t, err)
	listed := link.Answered(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+1)
	var waiter suite.Group
	waiter.Go(func() error {
		release, err := acquire(t.Context())
		if err != nil {
			return err
		}
		return release(t.Context())
	})

	suite.Wait(t, listed) // the waiter is in line
	require.NoError(t, release(t.Context()))
	require.NoError(t, waiter.Wait())
}

// Every node that is created through a view has the view's ACL, short-lived nodes included.
func TestEveryNodeHasTheACLOfItsView(t *testing.T) {
	acl := zk.DigestACL(zk.PermAll, "alice", "secret")
	for recipe, use := range uses {
		t.Run(recipe, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				link, seen := srv.Link(t), new(creations)
				base := link.Client(t, protocol.WithAuth("digest", []byte("alice:secret")), seen.over(link))
				root := srv.Root(t)
				_, err := suite.Session(t, base).EnsurePath(t.Context(), root)
				require.NoError(t, err)
				seen.forget()

				use(t, base.With(protocol.WithACL(acl)), root+"/x", link)

				require.NotEmpty(t, seen.all())
				for _, n := range seen.all() {
					require.Equal(t, acl, n.acl, n.path)
				}
			})
		})
	}
}

// With a credential and no ACL, every recipe works with nodes that are the credential's alone.
func TestCredentialAloneMakesEveryNodeItsOwn(t *testing.T) {
	for recipe, use := range uses {
		t.Run(recipe, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				root := srv.Root(t)
				_, err := suite.Session(t, srv.Client(t)).EnsurePath(t.Context(), root)
				require.NoError(t, err)
				link, seen := srv.Link(t), new(creations)
				c := link.Client(t, protocol.WithAuth("digest", []byte("alice:secret")), seen.over(link))

				use(t, c, root+"/x", link)

				require.NotEmpty(t, seen.all())
				for _, n := range seen.all() {
					require.Equal(t, zk.AuthACL(zk.PermAll), n.acl, n.path)
				}
				_, _, err = suite.Session(t, srv.Client(t)).Children(t.Context(), root+"/x")
				if !errors.Is(err, zk.ErrNoNode) { // the server removes empty containers
					require.ErrorIs(t, err, zk.ErrNoAuth)
				}
			})
		})
	}
}

// Each node gets the ACL that the function returns for its path, without the chroot.
func TestEveryNodeHasTheACLForItsPath(t *testing.T) {
	for recipe, use := range uses {
		t.Run(recipe, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				chroot := srv.Root(t) + "/app"
				link, seen := srv.Link(t), new(creations)
				c, err := protocol.Connect(t.Context(), srv.ConnectString()+chroot, seen.over(link),
					protocol.WithAuth("digest", []byte("alice:secret")), protocol.WithACLFor(pathACL))
				require.NoError(t, err)
				defer suite.Close(t, c)

				use(t, c, "/x", link)

				nodes := seen.all()
				require.NotEmpty(t, nodes)
				for _, n := range nodes {
					_, path, _ := strings.Cut(n.path, "/app")
					if path == "" {
						path = "/" // the chroot, or a node above it
					}
					require.Equal(t, pathACL(path), n.acl, n.path)
				}
			})
		})
	}
}

// pathACL gives each path an ACL of its own.
func pathACL(path string) []zk.ACL {
	return append(zk.AuthACL(zk.PermAll), zk.DigestACL(zk.PermRead, strings.ReplaceAll(path, ":", "."), "")...)
}

func TestNilACLForAPathIsTheDefault(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		shared := func(path string) []zk.ACL {
			if path == root || path == root+"/locks" {
				return zk.WorldACL(zk.PermRead | zk.PermCreate)
			}
			return nil
		}
		as := func(user string) *protocol.Client {
			return srv.Client(t, protocol.WithAuth("digest", []byte(user+":secret")), protocol.WithACLFor(shared))
		}
		alice, bob := as("alice"), as("bob")
		for name, c := range map[string]*protocol.Client{"a": alice, "b": bob} {
			lease, err := lock.New(c, root+"/locks/"+name).Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
		}

		_, err := lock.New(bob, root+"/locks/a").Lock(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth, "it is alice's")
	})
}

func TestLastOptionForACLsCounts(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		open := func(string) []zk.ACL { return zk.WorldACL(zk.PermAll) }
		root := srv.Root(t)
		_, err := suite.Session(t, srv.Client(t)).EnsurePath(t.Context(), root)
		require.NoError(t, err)
		c := srv.Client(t, protocol.WithAuth("digest", []byte("alice:secret")))
		for name, view := range map[string]struct {
			c    *protocol.Client
			want []zk.ACL
		}{
			"none":      {c, zk.AuthACL(zk.PermAll)},
			"opened":    {c.With(protocol.WithACL(zk.WorldACL(zk.PermAll))), zk.WorldACL(zk.PermAll)},
			"for":       {c.With(protocol.WithACL(zk.WorldACL(zk.PermRead)), protocol.WithACLFor(open)), zk.WorldACL(zk.PermAll)},
			"constant":  {c.With(protocol.WithACLFor(open)).With(protocol.WithACL(zk.WorldACL(zk.PermRead))), zk.WorldACL(zk.PermRead)},
			"none for":  {c.With(protocol.WithACLFor(func(string) []zk.ACL { return nil })), zk.AuthACL(zk.PermAll)},
			"anonymous": {srv.Client(t), zk.WorldACL(zk.PermAll)},
			"address":   {srv.Client(t, protocol.WithAuth("ip", nil)), zk.WorldACL(zk.PermAll)},
		} {
			require.Equal(t, view.want, suite.Session(t, view.c).ACL(root+"/x"), name)
			require.NoError(t, suite.Session(t, view.c).Create(t.Context(), root+"/"+name, nil, 0), name)
		}
	})
}

func TestOptionsOfSecurityThatAreRefused(t *testing.T) {
	for want, option := range map[string]protocol.ConnectOption{
		"empty ACL":             protocol.WithACL(nil),
		"nil function for ACLs": protocol.WithACLFor(nil),
		"empty auth scheme":     protocol.WithAuth("", nil),
		"has no SASL":           protocol.WithAuth("sasl", nil),
	} {
		_, err := protocol.Connect(t.Context(), "127.0.0.1:1", option)
		require.ErrorContains(t, err, want)
	}
}

// creations records the nodes that connections ask to create.
type creations struct {
	mu    sync.Mutex // protects nodes
	nodes []creation
}

type creation struct {
	path string
	acl  []zk.ACL
}

func (c *creations) over(link *recipestest.Link) protocol.ConnectOption {
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := link.Dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &creationsConn{Conn: conn, to: c}, nil
	})
}

func (c *creations) note(n creation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
}

func (c *creations) all() []creation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes
}

func (c *creations) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = nil
}

type creationsConn struct {
	net.Conn
	to     *creations
	buf    []byte // the bytes of an incomplete frame
	shaken bool   // the first frame, which is no request, is over
}

func (c *creationsConn) Write(p []byte) (int, error) {
	c.buf = append(c.buf, p...)
	for len(c.buf) >= 4 {
		size := 4 + int(binary.BigEndian.Uint32(c.buf))
		if len(c.buf) < size {
			break
		}
		if c.shaken {
			c.request(c.buf[4:size])
		}
		c.shaken = true
		c.buf = c.buf[size:]
	}

	return c.Conn.Write(p)
}

// request records the nodes of one request, which begins with its number and its operation.
func (c *creationsConn) request(frame []byte) {
	d := decoder(frame[4:])
	switch op := recipestest.Op(d.int()); op {
	case recipestest.OpCreate, recipestest.OpCreateContainer, recipestest.OpCreateTTL:
		c.to.note(d.creation())
	case recipestest.OpMulti:
		for {
			op, last := recipestest.Op(d.int()), d.next(1)[0] == 1
			d.int() // error
			if last {
				return
			}

			switch op {
			case recipestest.OpCreate:
				c.to.note(d.creation())
			case recipestest.OpSetData:
				d.bytes()
				d.bytes()
				d.int()
			default: // a deletion or a check
				d.bytes()
				d.int()
			}
		}
	}
}

type decoder []byte

func (d *decoder) next(n int) []byte {
	b := (*d)[:n]
	*d = (*d)[n:]
	return b
}

func (d *decoder) int() int32    { return int32(binary.BigEndian.Uint32(d.next(4))) }
func (d *decoder) bytes() []byte { return d.next(int(max(d.int(), 0))) }

func (d *decoder) creation() creation {
	n := creation{path: string(d.bytes())}
	d.bytes() // data
	for range d.int() {
		perms := d.int()
		n.acl = append(n.acl, zk.ACL{Perms: perms, Scheme: string(d.bytes()), ID: string(d.bytes())})
	}

	d.int() // flags
	return n
}
