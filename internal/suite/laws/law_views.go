package laws

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A view is a client with a chroot, an identity and an ACL. There are several ways to set the ACL.
type view struct {
	name string
	acl  func(path string) []zk.ACL
	opts []protocol.ConnectOption
	with []protocol.Option
}

// By default the identity of a view may do everything, and nobody else anything. An ACL lets others
// read.
func mine(string) []zk.ACL { return zk.DigestACL(zk.PermAll, "me", "secret") }

func shared(path string) []zk.ACL { return append(mine(path), zk.WorldACL(zk.PermRead)...) }

// named is the ACL of a function. It differs from path to path (but not by numbers, because a
// server appends them to some paths).
func named(path string) []zk.ACL {
	return append(mine(path), zk.DigestACL(zk.PermRead, numbers.ReplaceAllString(path, ""), "")...)
}

var (
	quietly = protocol.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	opened  = protocol.WithACL(zk.WorldACL(zk.PermAll))
)

var views = []view{
	{"identity", mine, nil, nil},
	{"identity and With", mine, nil, []protocol.Option{quietly}},
	{"ACL at Connect", shared, []protocol.ConnectOption{protocol.WithACL(shared(""))}, nil},
	{"ACL at Connect and With", shared, []protocol.ConnectOption{protocol.WithACL(shared(""))}, []protocol.Option{quietly}},
	{"ACL of With", shared, []protocol.ConnectOption{opened}, []protocol.Option{protocol.WithACL(shared(""))}},
	{"ACL function at Connect and With", named, []protocol.ConnectOption{protocol.WithACLFor(named)}, []protocol.Option{quietly}},
	{"ACL function of With", named, []protocol.ConnectOption{opened}, []protocol.Option{protocol.WithACLFor(named)}},
}

// Views plays a call below a chroot with an identity and an ACL (for each way to set the ACL).
// Every node that appears at any moment must have the view's ACL, and none may appear outside the
// chroot. The call must work as always.
func Views(t *testing.T, p *Player) {
	title := "What comes of a call below a chroot, with an identity and an ACL."
	p.law(t, law{name: "views", title: title, embedded: true, cells: func(sc *scene) {
		for _, view := range views {
			sc.cell(view.name, setting{begin: below, view: view.connect}, func(s *Stage, v Verb, base int) {
				var wrong exposed
				for step := 1; step <= most; step++ {
					s.Link.Meet(step, func(operations []string) {
						if strings.HasPrefix(operations[0], "answer") {
							wrong.look(s, view.acl)
						}
					})
				}
				o := s.do(v, s.ctx)
				wrong.look(s, view.acl)
				text := s.judge(v, o, base, *sc.calm)
				wrong.look(s, view.acl)
				if len(wrong.nodes) > 0 {
					text = fmt.Sprint("! ", text, "; exposed: ", strings.Join(wrong.nodes, ", "))
				}
				sc.note("a view", view.name, text)
			})
		}
	}})
}

// below prepares a stage below a chroot that nobody has made yet.
func below(s *Stage) {
	s.chroot, s.Path = strings.TrimSuffix(s.Path, "/p")+"/chroot", "/parent/p"
	s.reader = s.Server.Conn(s.T)
	check(s.reader.AddAuth("digest", []byte("me:secret")))
}

func (v view) connect(s *Stage, link bool, opts []protocol.ConnectOption) *protocol.Client {
	dial := s.Server.Dial
	if link {
		dial = s.Link.Dial
	}
	opts = append(opts, protocol.WithDialer(dial), protocol.WithAuth("digest", []byte("me:secret")))
	client := must(protocol.Connect(s.ctx, s.Server.ConnectString()+s.chroot, append(opts, v.opts...)...))
	s.Cleanup(func() { client.Close() })
	if v.with == nil {
		return client
	}
	return client.With(v.with...)
}

// Exposed are nodes that others could read or change, or that are where they should not be.
type exposed struct {
	mu    sync.Mutex
	nodes []string
}

func (e *exposed) look(s *Stage, want func(path string) []zk.ACL) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.walk("/", func(path string) {
		if path == "/" || strings.HasPrefix(path, "/zookeeper") {
			return
		}
		name, given := s.shorten(path), strings.TrimPrefix(path, s.chroot)
		switch {
		case path == s.chroot:
			name, given = "the chroot", "/"
		case strings.HasPrefix(s.chroot, path+"/"):
			name, given = "above the chroot", "/"
		case !strings.HasPrefix(path, s.chroot+"/"):
			name = "outside of the chroot"
		}
		acl, _, err := s.reader.GetACL(path)
		if err == nil && (!slices.Equal(acl, want(given)) || name == "outside of the chroot") && !slices.Contains(e.nodes, name) {
			e.nodes = append(e.nodes, name)
		}
	})
	slices.Sort(e.nodes)
}
