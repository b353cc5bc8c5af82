package laws

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A Row of the table is a verb, made ready on a stage.
type Row struct {
	Name string
	Make func(*Stage) Verb
}

// A Verb is a call, and all that a law needs to know about it. Only Call is needed.
type Verb struct {
	Before func()                                           // brings about what one call needs
	Call   func(ctx context.Context) (*Held, error)         // the call to test
	Beside func(ctx context.Context)                        // the other client does it after patience, for a Call that waits for it
	Effect func() int                                       // how often it has happened since some moment, as others see it
	Own    string                                           // matches the node of what Call returns; the default of Effect counts such nodes
	Again  bool                                             // to do it twice is to do it once
	About  func(ctx context.Context, node string) error     // Call, about another node
	Turn   func(ctx context.Context, hold func(Hold)) error // what each of several clients does, if it is not Call: it calls hold while it holds something
	Loose  bool                                             // Call may have done it, or do it later, though it returns an error
}

// A Hold is a lease (or a term, permit or entry), which ends with its node and its session.
type Hold interface {
	Err() error
	Done() <-chan struct{}
	Context(context.Context) (context.Context, context.CancelFunc)
}

// Held is the result of a call that must be given back.
type Held struct {
	Hold // nil if it survives its session
	Back func(context.Context) error
}

// held makes the result of a verb a Held, given how it is given back.
func held[H Hold](back func(H, context.Context) error) func(H, error) (*Held, error) {
	return func(h H, err error) (*Held, error) {
		if err != nil {
			return nil, err
		}
		return &Held{h, func(ctx context.Context) error { return back(h, ctx) }}, nil
	}
}

// call makes a verb that returns nothing a Call.
func call(verb func(context.Context) error) func(context.Context) (*Held, error) {
	return func(ctx context.Context) (*Held, error) { return nil, verb(ctx) }
}

// A Stage is a fresh server with a path and two clients. The verb of the first client is called.
type Stage struct {
	*testing.T
	Server *recipestest.Server
	Link   *recipestest.Link // of Client
	Client *protocol.Client
	Path   string
	Other  func() *protocol.Client // connects when first called
	player *Player
	chroot string             // of both clients; Path is below it
	reader *zk.Conn           // reads the tree, if not everybody may
	Member *embedded.Follower // of Link, in laws about a server that lags
	ctx    context.Context
	cancel func() // ends the ctx of the call

	*marks // of all copies of the stage
}

// marks are what faults leave behind, which come in goroutines of the link.
type marks struct {
	stormy    atomic.Bool            // there was a storm of requests
	gone      atomic.Bool            // nodes were deleted by hand
	expired   atomic.Bool            // the session has ended, or will
	others    atomic.Bool            // Other was called
	disappear atomic.Pointer[func()] // removes what an operator has created
}

const (
	timeout = 4 * time.Second  // of sessions
	quiet   = 12 * time.Second // in which everything in the background is over

	// patience is the time before Beside. A client has work of its own at multiples of 500 ms, and
	// a call that met that work would have other packets in each run.
	patience = 1130 * time.Millisecond

	limit = 2 * time.Minute // for a call: one that takes longer hangs
	most  = 100             // packets of a call are broken
	storm = 5000            // packets are more than any verb needs
)

// usually are the options of a client.
var usually = []protocol.ConnectOption{protocol.WithSessionTimeout(timeout), protocol.WithOwnerData(nil)}

// A setting is whatever is unusual about the stage of a cell.
type setting struct {
	begin   func(*Stage)             // comes before the client connects
	client  []protocol.ConnectOption // of Client
	server  []recipestest.Option
	view    func(s *Stage, link bool, opts []protocol.ConnectOption) *protocol.Client // connects both clients
	lasts   time.Duration                                                             // if that is longer than usual
	ready   time.Duration                                                             // between what comes before the call and the call
	packets int                                                                       // are a storm, if that is more than usual
}

// connect connects the client under test over its link, or the other one.
func (in setting) connect(s *Stage, link bool, opts []protocol.ConnectOption) *protocol.Client {
	switch {
	case in.view != nil:
		return in.view(s, link, opts)
	case link:
		return s.Link.Client(s.T, opts...)
	}
	return s.Server.Client(s.T, opts...)
}

// play plays f on a fresh stage, and frees all of it.
func (sc *scene) play(t *testing.T, in setting, f func(s *Stage, v Verb)) {
	t.Helper()
	sc.server(t, func(t *testing.T, srv *recipestest.Server) {
		s := &Stage{T: t, Server: srv, Link: srv.Link(t), Path: srv.Root(t) + "/p", player: sc.Player, marks: new(marks)}
		if in.begin != nil {
			in.begin(s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), max(in.lasts, 4*limit))
		defer cancel()
		s.ctx = ctx
		s.Client = in.connect(s, true, append(usually[:2:2], in.client...))
		s.Other = sync.OnceValue(func() *protocol.Client {
			s.others.Store(true)
			return in.connect(s, false, usually[:2:2])
		})
		hangs := time.AfterFunc(max(in.lasts, 4*limit)+24*time.Hour, func() { panic(sc.row.Name + " hangs") })
		defer hangs.Stop()
		s.Link.At(max(in.packets, storm), func() { // virtual time stands still in an endless loop: end it
			s.Logf("%s: %d packets:\n%s", sc.row.Name, s.Link.Packets(), s.Link.Trace())
			s.stormy.Store(true)
			go s.Client.Close()
		})
		f(s, s.verb(sc.row))
	}, in.server...)
}

// ready plays f once the call is ready (after a first call if the scene is warm). base is how often
// the effect has happened by then.
func (sc *scene) ready(t *testing.T, in setting, f func(s *Stage, v Verb, base int)) {
	t.Helper()
	sc.play(t, in, func(s *Stage, v Verb) {
		if sc.warm {
			s.warm(v)
		}
		base, err := v.prepare()
		require.NoError(s, err)
		f(s, v, base)
	})
}

func (s *Stage) verb(row Row) Verb {
	v := row.Make(s)
	if v.Effect == nil && v.Own != "" {
		v.Effect = func() int { return len(s.Own(v.Own)) }
	}
	if v.Effect == nil {
		v.Effect = func() int { return 0 }
	}
	return v
}

// unready is what keeps a call from being made ready.
type unready struct{ error }

// must is for the steps by which a row makes its call ready.
func must[V any](v V, err error) V {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(unready{err})
	}
}

// An outcome is what came of a call.
type outcome struct {
	held    *Held
	err     error
	ended   time.Time
	late    bool // the other client has done meanwhile what comes after the call otherwise
	packets int  // that had come to the link by then
}

// since is how often it has happened since base.
func (v Verb) since(base int) int {
	n := v.Effect() - base
	if v.Again {
		n = min(n, 1)
	}
	return n
}

// prepare calls Before, and returns how often the effect has happened until now.
func (v Verb) prepare() (base int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(unready)
		}
	}()
	if v.Before != nil {
		v.Before()
	}
	return v.Effect(), nil
}

// do calls the verb, and Beside meanwhile.
func (s *Stage) do(v Verb, ctx context.Context) (o outcome) { return s.doWithin(v, ctx, limit) }

// doWithin is do with a limit of its own.
func (s *Stage) doWithin(v Verb, ctx context.Context, limit time.Duration) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	beside, endBeside := context.WithCancel(context.Background())
	var others sync.WaitGroup
	if v.Beside != nil {
		others.Go(func() {
			time.Sleep(patience)
			v.Beside(beside)
		})
	}
	began := time.Now()
	o.held, o.err = v.Call(ctx)
	o.late = v.Beside != nil && time.Since(began) >= patience
	o.ended, o.packets = time.Now(), s.Link.Packets()
	time.AfterFunc(2*timeout, endBeside)
	others.Wait()
	return o
}

// rest waits until everything in the background has ended. (What goroutines have written in virtual
// time can be read only after synctest.Wait, not after a sleep.)
func (s *Stage) rest() { time.Sleep(s.player.quiet); s.settled() }

// back gives back the result of the call.
func (o outcome) back() error {
	if o.held == nil || o.held.Back == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return o.held.Back(ctx)
}

// warm calls the verb once, with nothing broken.
func (s *Stage) warm(v Verb) {
	s.Helper()
	_, err := v.prepare()
	require.NoError(s, err)
	o := s.do(v, s.ctx)
	require.NoError(s, calm(o.err))
	require.NoError(s, o.back())
	s.rest()
}

// A node is one below the path of a stage.
type node struct {
	path    string // below the stage's path
	version int
	owner   string // the session of an ephemeral node
}

var dumped = regexp.MustCompile(`(?m)^(/.*?)  version (\d+),.*?(?:, session (\S+))?$`)

// tree returns the nodes, which no client of ours reads.
func (s *Stage) tree() (all []node) {
	if s.reader != nil {
		return s.walk(s.chroot+s.Path, nil)
	}
	for _, m := range dumped.FindAllStringSubmatch(s.Server.Dump(s.Path), -1) {
		version, _ := strconv.Atoi(m[2])
		all = append(all, node{strings.TrimPrefix(m[1], s.Path), version, m[3]})
	}
	return all
}

// walk returns a node and all below it that the reader may read. It calls each for each.
func (s *Stage) walk(path string, each func(path string)) (all []node) {
	_, stat, err := s.reader.Get(path)
	if err != nil {
		return nil
	}
	owner := ""
	if stat.EphemeralOwner != 0 {
		owner = fmt.Sprintf("%#x", stat.EphemeralOwner)
	}
	all = append(all, node{strings.TrimPrefix(path, s.chroot+s.Path), int(stat.Version), owner})
	if each != nil {
		each(path)
	}
	children, _, _ := s.reader.Children(path)
	for _, child := range slices.Sorted(slices.Values(children)) {
		all = append(all, s.walk(strings.TrimSuffix(path, "/")+"/"+child, each)...)
	}
	return all
}

// matching returns the nodes with a path (below the stage's) that matches.
func (s *Stage) matching(pattern string) []node {
	like := regexp.MustCompile(pattern)
	return slices.DeleteFunc(s.tree(), func(n node) bool { return !like.MatchString(n.path) })
}

// Count returns how many nodes match.
func (s *Stage) Count(pattern string) int { return len(s.matching(pattern)) }

// Versions returns how often the data of the nodes that match have been set.
func (s *Stage) Versions(pattern string) (n int) {
	for _, node := range s.matching(pattern) {
		n += node.version
	}
	return n
}

// reserved is an entry of a queue that a session has. It is not ephemeral.
var reserved = regexp.MustCompile(`^/zkrecipes/held/(0*([0-9a-f]+)-[^/]*)/`)

// Own returns the nodes of the client's sessions that match.
func (s *Stage) Own(pattern string) (paths []string) {
	other := fmt.Sprintf("%#x", must(s.Other().Session(s.ctx)).ID())
	all, like := s.tree(), regexp.MustCompile(pattern)
	there := make(map[string]bool)
	for _, node := range all {
		there[node.path] = true
	}
	for _, node := range all {
		// Without its consumer's node another client may take it over.
		if m := reserved.FindStringSubmatch(node.path); m != nil && there["/zkrecipes/consumers/"+m[1]] {
			node.owner = "0x" + m[2]
		}
		if node.owner != "" && node.owner != other && like.MatchString(node.path) {
			paths = append(paths, s.Path+node.path)
		}
	}
	return paths
}

// A packet is one that a verb sends or receives.
type packet struct {
	step    int
	request bool
	parts   []string // "create ME-lock-", "answer to getChildren"; several for a transaction
}

func (p packet) String() string {
	if len(p.parts) == 1 {
		return p.parts[0]
	}
	return "[" + strings.Join(p.parts, " + ") + "]"
}

// creates reports whether p is a request that creates a node.
func (p packet) creates() bool {
	return slices.ContainsFunc(p.parts, func(part string) bool { return strings.HasPrefix(part, "create") })
}

// A rehearsal is a call with which nothing is wrong.
type rehearsal struct {
	failed  bool
	packets []packet
	effect  int            // how often it has happened
	left    map[string]int // the nodes there are in the end
	holds   bool           // it returns a Hold that ends with its node
	uses    bool           // it is about a Hold that the caller has acquired before
	about   bool           // it can be about any contender
	turns   bool           // its row says what a turn is
	took    time.Duration
}

// requests are the packets that are requests.
func (r *rehearsal) requests() (all []packet) {
	for _, p := range r.packets {
		if p.request {
			all = append(all, p)
		}
	}
	return all
}

// waits reports whether the call waits for what happens beside it.
func (r *rehearsal) waits() bool { return r.took >= time.Second }

func (sc *scene) rehearse(t *testing.T) {
	t.Helper()
	var r rehearsal
	sc.ready(t, setting{}, func(s *Stage, v Verb, base int) {
		before := s.Link.Packets()
		var mu sync.Mutex // protects packets

		var packets []packet
		for step := 1; step <= most; step++ {
			s.Link.Meet(step, func(operations []string) {
				mu.Lock()
				defer mu.Unlock()
				packets = append(packets, s.packet(step, operations))
			})
		}

		began := time.Now()
		o := s.do(v, s.ctx)
		r.took = o.ended.Sub(began)

		mu.Lock()
		r.packets = slices.Clone(packets[:min(o.packets-before, most)])
		mu.Unlock()

		r.effect = v.Effect() - base
		r.holds = o.held != nil && o.held.Hold != nil && v.Own != ""
		r.about = v.About != nil
		r.turns = v.Turn != nil
		r.uses = o.held != nil && o.held.Hold != nil && v.Before != nil && v.Beside == nil && v.Own == ""

		require.NotContains(s, s.judge(v, o, base, r), "!", "without a fault")
		r.left = s.left()
		sc.calm = &r
	})
}

// A fault happens when a packet comes, before it passes.
type fault func(s *Stage, operations []string)

// broken adds a cell that plays a call, and breaks something when one of its packets comes. Then
// then judges what came of it. A packet that does not come this time is left out, and so is a cell
// without an outcome. Where goroutines race it may be another packet than in the rehearsal: p is
// the packet that has come, and at names it.
func (sc *scene) broken(name string, p packet, in setting, do fault, then func(s *Stage, v Verb, o outcome, base int, p packet) (at, text string)) {
	sc.add(fmt.Sprint(name, " ", p.step, " ", p), func(t *testing.T) {
		sc.ready(t, in, func(s *Stage, v Verb, base int) {
			p := packet{step: p.step}
			time.Sleep(in.ready)
			ctx, cancel := withCancel(s)
			defer cancel()

			var met atomic.Pointer[packet]
			over := make(chan struct{})
			stop := s.Link.Meet(p.step, func(operations []string) {
				defer close(over)
				p := s.packet(p.step, operations)
				met.Store(&p)
				do(s, operations)
			})

			o := s.do(v, ctx)
			s.Link.Fail(recipestest.OpAny, "", 0, 0)
			s.Link.Delay(0)

			if stop() {
				o.back()
				return
			}

			<-over // the packet may be of the background, so the call need not have waited for its fault
			if came := met.Load(); came != nil {
				p = *came
			}

			at, text := then(s, v, o, base, p)
			if text == "" {
				o.back()
				return
			}
			sc.note(name, at, text)
		})
	})
}

// withCancel returns a ctx for the call, which the stage's cancel ends.
func withCancel(s *Stage) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.cancel = cancel
	return ctx, cancel
}

// judged is the usual end of a broken call.
func (sc *scene) judged(s *Stage, v Verb, o outcome, base int, p packet) (at, text string) {
	return p.String(), s.judge(v, o, base, *sc.calm)
}

func (s *Stage) packet(step int, operations []string) packet {
	p := packet{step: step, request: true}
	for _, operation := range operations {
		what, path, _ := strings.Cut(operation, " ")
		switch {
		case what == "answer":
			p.parts, p.request = append(p.parts, operation), false
		case what == "event":
			p.parts, p.request = append(p.parts, "event at "+s.shorten(strings.TrimPrefix(path, "at "))), false
		default:
			p.parts = append(p.parts, strings.TrimSpace(what+" "+s.shorten(path)))
		}
	}
	return p
}

var (
	ownerPart = regexp.MustCompile(`[0-9a-f]{16}-[0-9a-f]{8}\b`)
	numbers   = regexp.MustCompile(`[0-9a-f]{16}-[0-9]*|[0-9]{10}`)
	delays    = regexp.MustCompile(`(delayed/|later-|/)[0-9]{12,13}\b`)
)

// shorten makes a path one that is the same in each run.
func (s *Stage) shorten(path string) string {
	path = strings.TrimPrefix(path, s.chroot)
	path = delays.ReplaceAllString(path, "${1}TIME")
	path = ownerPart.ReplaceAllString(path, "ME")
	path = numbers.ReplaceAllString(path, "N")
	root := s.Path[:strings.LastIndexByte(s.Path, '/')]
	switch {
	case path == root:
		return "the parent"
	case path == s.Path:
		return "the path"
	}
	return strings.TrimPrefix(strings.TrimPrefix(path, s.Path), "/")
}

// operator is the other client's session.
func (s *Stage) operator() *recipe.Session { return must(recipe.SessionOf(s.ctx, s.Other())) }

// vanish has an operator delete the node that an operation needs, and all below it: for a create
// that is the one above.
func (s *Stage) vanish(operation string) {
	op, path, _ := strings.Cut(operation, " ")
	if strings.HasPrefix(op, "create") {
		path = path[:strings.LastIndexByte(path, '/')]
	}
	if !strings.HasPrefix(path, s.Path) {
		return
	}
	operator := s.operator()
	for _, n := range slices.Backward(s.tree()) {
		if node := s.Path + n.path; node == path || strings.HasPrefix(node, path+"/") {
			operator.Delete(s.ctx, node, -1)
		}
	}
}

// appear has an operator create the node that an operation is about to create, until the next call.
func (s *Stage) appear(operation string) {
	if _, path, _ := strings.Cut(operation, " "); strings.HasPrefix(path, s.Path) {
		operator := s.operator()
		operator.Create(s.ctx, path, nil, 0)
		disappear := func() { operator.Delete(s.ctx, path, -1) }
		s.disappear.Store(&disappear)
	}
}
