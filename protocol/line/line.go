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

// ErrBusy is the error of a contender that would have to wait and doesn't. Recipes have their own
// errors for that (see [NewBusy]).
var ErrBusy = NewBusy("busy")

// NewBusy returns an error with this text, for calls that would have to wait and don't.
// [protocol.LogObserver] logs it at level debug.
func NewBusy(text string) error { return &busyError{text} }

type busyError struct{ text string }

func (b *busyError) Error() string { return b.text }

// Busy tells observers that this is no failure.
func (b *busyError) Busy() bool { return true }

// errGone means that a contender's node was deleted before it was granted.
var errGone = errors.New("node deleted while waiting")

// Blockers returns the contenders that block line[self]. At least one of them must go before it is
// granted. If there are none, it is granted. The line is in order of arrival.
//
// Blockers must return every contender whose end can let line[self] in, and can return more. When
// one of them is gone, Blockers is called again with a new listing. It must decide by names,
// because data can be out of date when it arrives.
//
// Blockers is also called for the rest of a line (whose first contenders are gone). It is called
// for a contender to come, too (last in line, without a node and a sequence number). It gets only
// contenders of the line's own kinds. Contenders share the slice, so Blockers must not change it.
// It must be safe for concurrent use.
type Blockers func(line []Name, self int) []Name

// Permits lets n contenders in at a time. A contender waits as long as the n contenders just before
// it are all there. Once it needn't wait any more, one of them has gone.
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
	Kind     string   // before the number in the node's name; must end with a kind of the line
	Data     []byte   // of the node; nil for the view's owner data
	Blockers Blockers // nil for Exclusive
	Try      bool     // return ErrBusy instead of waiting

	// Keep can replace the function that deletes the contender's node. It gets that function just
	// before the grant, and returns the function that [recipe.Grant.Release] calls.
	Keep func(remove func(context.Context, *recipe.Session) error) func(context.Context, *recipe.Session) error

	// Recipe is the grant's recipe (nil for the line's recipe). The end of the grant is reported
	// with its mode.
	Recipe *recipe.Recipe
}

// A Line is a node whose sequential children contend for something, in order of arrival. It ignores
// other children (but while there are any, no contender is granted in one round trip). A Line is
// safe for concurrent use.
//
// Several recipes can share a path by mistake, or while a fleet moves from one recipe to another.
// So a contender also waits for earlier contenders of other kinds if they belong to a recipe of
// this module, to a library with which it shares lines or to ZooKeeper's WriteLock.
type Line struct {
	recipe *recipe.Recipe
	kinds  []Kind
	names  []string // of the kinds
	parent parent

	first []byte                              // see Follow
	rule  func(data []byte) (Blockers, error) // nil without a rule
}

// New returns the line of contenders of these kinds at the recipe's path. It does no I/O and can't
// fail.
func New(r *recipe.Recipe, kinds ...Kind) *Line {
	l := &Line{recipe: r, kinds: kinds}
	for _, k := range kinds {
		l.names = append(l.names, k.Name)
	}
	return l
}

// validate refuses a request whose nodes wouldn't be contenders. (They wouldn't see each other.)
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

// allExclusive reports whether all contenders of the line's kinds are exclusive.
func (l *Line) allExclusive() bool {
	return !slices.ContainsFunc(l.kinds, func(k Kind) bool { return !k.Exclusive })
}

// made returns the line's recipe. For a nil Line that is a nil Recipe (which refuses every call).
func (l *Line) made() *recipe.Recipe {
	if l == nil {
		return nil
	}
	return l.recipe
}

func (l *Line) pathOf(node string) string { return l.recipe.Path() + "/" + node }

// Enter waits in line until the request is granted, ctx ends or the client is closed. If ctx ends,
// the contender leaves the line. If the session is lost or another client deletes the contender's
// node, the contender goes to the end of the line. A request with Try reads first and writes
// nothing if it would have to wait. (If the only other contender is [Lingering], it waits in line
// for a quarter of a second.) The grant doesn't depend on ctx: give it back with
// [recipe.Grant.Release].
//
// Errors have the recipe and the path in their text. Enter returns
//   - ctx's error (even if the grant came at the same moment)
//   - [ErrBusy]
//   - [protocol.ErrClosed] and [protocol.ErrMixed]
//   - [protocol.ErrTooLarge] and [protocol.ErrSequenceExhausted]
//   - [zk.ErrInvalidPath], and [zk.ErrBadArguments] if the line has no such kind
//   - errors of the server ([zk.ErrNoAuth], for example)
//
// Enter is safe for concurrent use.
func (l *Line) Enter(ctx context.Context, r Request) (*recipe.Grant, error) {
	return l.made().Acquire(ctx, r.Data, func(s *recipe.Session) (*recipe.Grant, error) {
		return l.Join(ctx, s, &r)
	})
}

// Join does the work of [Line.Enter] under one session, for recipes that call
// [recipe.Recipe.Acquire] themselves. If s is lost or the contender's node is deleted, Join
// returns an error that makes Acquire call it again. It also returns Enter's errors, without recipe
// and path. The request must not change while Join runs.
func (l *Line) Join(ctx context.Context, s *recipe.Session, r *Request) (*recipe.Grant, error) {
	if err := l.validate(r); err != nil {
		return nil, err
	}

	if r.Try {
		if blocker, only, err := l.peek(ctx, s, r); err != nil {
			return nil, err
		} else if only && blocker.Kind == Lingering {
			return l.outlast(ctx, s, r)
		} else if blocker.Node != "" {
			return nil, ErrBusy
		}
	}

	return l.stay(ctx, s, r)
}

// patience is how long a request with Try waits in line if the only other contender is Lingering.
// (That contender gives back at once a lock that it doesn't use.)
const patience = 250 * time.Millisecond

// outlast waits in line for at most that time.
func (l *Line) outlast(ctx context.Context, s *recipe.Session, r *Request) (*recipe.Grant, error) {
	waits := *r
	waits.Try = false
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	g, err := l.stay(soon, s, &waits)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		err = ErrBusy
	}

	return g, err
}

// stay contends again whenever another client has deleted the contender's node.
func (l *Line) stay(ctx context.Context, s *recipe.Session, r *Request) (*recipe.Grant, error) {
	// A deletion is no failure. So these pauses don't come from the view's back-off, which can end.
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

// Claim makes one attempt under s, without waiting in line. If it would have to wait, it returns
// [ErrBusy] and the name of a node that blocks it (or no name if another contender was faster). A
// request with Try reads first, and writes nothing if it would have to wait. Claim also returns the
// errors of [Line.Enter], without recipe and path. It doesn't change the request.
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

// peek returns a contender that would block a new contender, or the zero Name. only reports whether
// no other contender is in line. peek writes nothing, except the rule of a line that has none yet.
func (l *Line) peek(ctx context.Context, s *recipe.Session, r *Request) (blocker Name, only bool, err error) {
	children, data, err := l.children(ctx, s)
	request := *r

	// Before the rule refuses the request, make sure that the server doesn't lag.
	if err == nil && l.obey(&request, data) != nil {
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

	names := append(l.Among(children), Name{Kind: r.Kind})
	blockers := request.blockers(names, len(names)-1)
	if len(blockers) == 0 {
		return Name{}, false, nil
	}

	return blockers[len(blockers)-1], len(names) == 2, nil
}

// Gone blocks until the node that [Line.Claim] has returned is gone, or until ctx or s ends. It
// makes one request, which sets a watch. It returns the errors that [recipe.Do] returns.
func (l *Line) Gone(ctx context.Context, s *recipe.Session, node string) error {
	w := s.Watch(l.pathOf(node))
	if _, err := w.Ready(ctx); errors.Is(err, zk.ErrNoNode) {
		return nil
	} else if err != nil {
		return err
	}
	return s.WaitAny(ctx, w)
}
