package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrBusy is returned to contenders that do not wait and would have to. Recipes have errors of
// their own for that, made by [NewBusy].
var ErrBusy = NewBusy("busy")

// NewBusy returns an error with this text for calls that do not wait and would have to.
// [protocol.LogObserver] logs it at level debug.
func NewBusy(text string) error { return &busyError{text} }

type busyError struct{ text string }

func (b *busyError) Error() string { return b.text }

// Busy marks the error for observers.
func (b *busyError) Busy() bool { return true }

// errGone says that a node of ours was deleted before it was granted.
var errGone = errors.New("node deleted while waiting")

// Blockers returns the contenders before line[self] of which at least one must go before it is
// granted. It is granted if there are none. The line is in order of arrival.
//
// While a contender is blocked, Blockers names each contender whose end may let it in. It may name
// others, too: when one of those that it has named is gone, it is asked again, with a new listing.
// It decides by names and not by data, which may be out of date when it arrives. It is also asked
// about the rest of a line whose first contenders are gone, and about a contender to come, last in
// line, that has no node and no sequence number yet. It must not change the slice, which contenders
// share. It may be called concurrently. It is told of contenders of the line's own kinds alone.
type Blockers func(line []Name, self int) []Name

// Permits lets n contenders in at a time. As long as the n just before a contender are all there it
// has to wait, and whenever it need not wait any longer, one of them has gone.
func Permits(n int) Blockers {
	return func(line []Name, self int) []Name {
		if self < n {
			return nil
		}
		return line[self-n : self]
	}
}

// Exclusive lets one contender in at a time.
var Exclusive = Permits(1)

// A Request is what a contender asks for.
type Request struct {
	Kind     string   // before the number in the node's name; it ends with a kind of the line
	Data     []byte   // of the node; nil: the owner data of the view
	Blockers Blockers // nil: Exclusive
	Try      bool     // return ErrBusy instead of waiting

	// Patience is how long a request with Try waits in line if the only other contender is Lingering,
	// which may give back at once what it does not use.
	Patience time.Duration

	// Keep, if not nil, is given what deletes the node of a contender that is about to be granted,
	// and returns what [recipe.Grant.Release] calls instead.
	Keep func(remove func(context.Context, *recipe.Session) error) func(context.Context, *recipe.Session) error

	// Recipe, if not nil, is the grant's recipe instead of the line's, such as one of
	// [recipe.Recipe.Mode]: the end of the grant is reported with its mode.
	Recipe *recipe.Recipe
}

// A Line is a node whose sequential children contend for something, in order of arrival. Other
// children are ignored, but while there are any, no contender is granted in one round trip. A Line
// is safe for concurrent use.
//
// A path may be used with several recipes by mistake, or while a fleet moves from one to another.
// So a contender also waits for all contenders of other kinds that came before it, if their kind is
// one of this module's recipes, or of ZooKeeper's WriteLock. Those recipes wait for each other.
type Line struct {
	recipe *recipe.Recipe
	kinds  []Kind
	names  []string // of the kinds
	parent parent

	first []byte                              // see Follow
	rule  func(data []byte) (Blockers, error) // nil without a rule
}

// New returns the line of contenders of these kinds at the recipe's path. It does no I/O and cannot
// fail.
func New(r *recipe.Recipe, kinds ...Kind) *Line {
	l := &Line{recipe: r, kinds: kinds}
	for _, k := range kinds {
		l.names = append(l.names, k.Name)
	}
	return l
}

// validate refuses a request whose nodes would not be contenders: they would not see each other.
func (l *Line) validate(r *Request) error {
	if !slices.ContainsFunc(l.names, func(name string) bool { return name != "" && strings.HasSuffix(r.Kind, name) }) {
		return fmt.Errorf("%w: the line has no contenders of kind %q", zk.ErrBadArguments, r.Kind)
	}
	if strings.Contains(r.Kind, "/") {
		return fmt.Errorf("%w: the kind %q has a slash", zk.ErrBadArguments, r.Kind)
	}
	return nil
}

func (l *Line) exclusive(kind string) bool { return slices.Contains(l.kinds, Kind{kind, true}) }

// allExclusive reports whether no contender can be anything but exclusive.
func (l *Line) allExclusive() bool {
	return !slices.ContainsFunc(l.kinds, func(k Kind) bool { return !k.Exclusive })
}

// made returns the line's recipe. That of a nil Line is nil, which refuses every call.
func (l *Line) made() *recipe.Recipe {
	if l == nil {
		return nil
	}
	return l.recipe
}

func (l *Line) pathOf(node string) string { return l.recipe.Path() + "/" + node }

// Enter waits in line until the request is granted. It blocks until then, until ctx ends, which
// takes the contender out of line, or the client is closed. If the session is lost or the
// contender's node is deleted by another client, it goes to the end of the line again. A request
// with Try reads first, and writes nothing if it would have to wait. The grant does not depend on
// ctx, and is given back with [recipe.Grant.Release].
//
// Enter returns ctx's error, also if the grant came at the same moment, [ErrBusy],
// [protocol.ErrClosed], [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted],
// [protocol.ErrMixed], [zk.ErrInvalidPath], [zk.ErrBadArguments] if the line has no such kind, or
// the server's own, such as [zk.ErrNoAuth]. The error carries recipe and path. Enter is safe for
// concurrent use.
func (l *Line) Enter(ctx context.Context, r Request) (*recipe.Grant, error) {
	return l.made().Acquire(ctx, r.Data, func(s *recipe.Session) (*recipe.Grant, error) {
		return l.Join(ctx, s, &r)
	})
}

// Join is what [Line.Enter] does under one session, for recipes that call [recipe.Recipe.Acquire]
// themselves. If s is lost, or the contender's node is deleted, Join returns an error after which
// Acquire calls it again. Its other errors are those of Enter, without recipe and path. The request
// must not change while Join runs.
func (l *Line) Join(ctx context.Context, s *recipe.Session, r *Request) (*recipe.Grant, error) {
	if err := l.validate(r); err != nil {
		return nil, err
	}
	if r.Try {
		if blocker, only, err := l.peek(ctx, s, r); err != nil {
			return nil, err
		} else if only && r.Patience > 0 && blocker.Kind == Lingering {
			return l.outlast(ctx, s, r)
		} else if blocker.Node != "" {
			return nil, ErrBusy
		}
	}
	return l.stay(ctx, s, r)
}

// outlast waits in line for as long as the request's patience lasts.
func (l *Line) outlast(ctx context.Context, s *recipe.Session, r *Request) (*recipe.Grant, error) {
	waits := *r
	waits.Try = false
	soon, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	g, err := l.stay(soon, s, &waits)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		err = ErrBusy
	}
	return g, err
}

// stay contends again and again, as long as the contender's node is deleted while it waits.
func (l *Line) stay(ctx context.Context, s *recipe.Session, r *Request) (*recipe.Grant, error) {
	// A contender whose node was deleted is not to blame the view's back-off, which may end.
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		g, err := l.contend(ctx, s, r, false)
		if !errors.Is(err, errGone) || s.Err() != nil {
			return g, err
		}
		select {
		case <-time.After(pause):
		case <-s.Done():
			return nil, err
		case <-ctx.Done():
			return nil, recipe.Ended(ctx)
		}
	}
}

// Claim makes one attempt to get something without waiting in line, under s. It returns [ErrBusy]
// and the name of a node that it would have to wait for, or no name if another contender was
// faster. A request with Try reads first, and writes nothing if it would have to wait. Its other
// errors are those of [Line.Enter], without recipe and path. It does not change the request.
func (l *Line) Claim(ctx context.Context, s *recipe.Session, r *Request) (g *recipe.Grant, blocker string, err error) {
	if err := l.validate(r); err != nil {
		return nil, "", err
	}
	if r.Try || !l.parent.likely() {
		blocker, _, err := l.peek(ctx, s, r)
		if err != nil {
			return nil, "", err
		} else if blocker.Node != "" {
			return nil, blocker.Node, ErrBusy
		}
	}
	try := *r
	try.Try = true
	g, err = l.contend(ctx, s, &try, true)
	return g, "", err
}

// peek returns a contender that another one which came now would have to wait for, if any, and
// whether it is the only one in line. It only reads, but for the rule of a line that has none yet.
func (l *Line) peek(ctx context.Context, s *recipe.Session, r *Request) (blocker Name, only bool, err error) {
	children, data, err := l.children(ctx, s)
	request := *r
	if err == nil && l.obey(&request, data) != nil { // the server may lag
		if err := s.Sync(ctx, l.recipe.Path()); err != nil {
			return Name{}, false, err
		}
		if children, data, err = l.children(ctx, s); err == nil {
			err = l.obey(&request, data)
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return Name{}, false, nil
	} else if err != nil {
		return Name{}, false, err
	}

	names := append(l.parse(children), Name{Kind: r.Kind})
	blockers := request.blockers(names, len(names)-1)
	if len(blockers) == 0 {
		return Name{}, false, nil
	}
	return blockers[len(blockers)-1], len(names) == 2, nil
}

// Lingers reports whether the node of that name may stay in line though it is not used, until
// another contender is in line.
func (l *Line) Lingers(node string) bool {
	n, ok := l.name(node)
	return ok && n.Kind == Lingering
}

// Gone blocks until the node that [Line.Claim] has named is gone, ctx ends or s is over. Its errors
// are those of [recipe.Do]. It costs no request but the one that sets the watch.
func (l *Line) Gone(ctx context.Context, s *recipe.Session, node string) error {
	w := s.Watch(l.pathOf(node))
	if _, err := w.Ready(ctx); errors.Is(err, zk.ErrNoNode) {
		return nil
	} else if err != nil {
		return err
	}
	return s.WaitAny(ctx, w)
}
