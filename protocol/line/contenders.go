package line

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Contender is one node in line, a holder's or a waiter's.
type Contender struct {
	Node    string    // its name below the recipe's path
	Session int64     // its owner
	Token   int64     // its czxid: the fencing token that its owner has or will have
	Data    []byte    // of its node
	Since   time.Time // its creation, by the server's clock: since when it is in line
	Holds   bool      // it has got what it came for, by the rules of its own library
	Lingers bool      // its node may be unused, if it is alone in line: with others behind it, it is in use
}

// contenderOf returns the contender whose node has this name, data and Stat.
func contenderOf(node string, data []byte, stat *zk.Stat) Contender {
	return Contender{Node: node, Session: stat.EphemeralOwner, Token: stat.Czxid, Data: data, Since: time.UnixMilli(stat.Ctime)}
}

const (
	readers     = 16 // how many nodes are read at the same time
	maxListings = 4  // how often the line is listed again because a contender has left it meanwhile
)

// Contenders returns the contenders in line, in order, as of a moment after the call began. Those
// of other kinds are among them, as contenders behind them wait for them. An empty line has none,
// and neither has a path that does not exist.
//
// It blocks until the server has answered, with one request for each node, and returns the errors
// of [protocol.Do] and of [protocol.Recipe.Session], with recipe and path. If a contender leaves
// between the list and the requests the line is listed again: a holder may have replaced its node
// by another one. The fourth listing is the last: a holder that replaces its node after that is
// missing. Contenders is safe for concurrent use.
func (l *Line) Contenders(ctx context.Context) ([]Contender, error) {
	all, err := l.contenders(ctx)
	return all, l.made().Wrap(err)
}

func (l *Line) contenders(ctx context.Context) ([]Contender, error) {
	s, err := l.made().Session(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Sync(ctx, l.recipe.Path()); err != nil {
		return nil, err
	}

	known := make(map[string]Contender)
	for listing := 1; ; listing++ {
		children, data, err := l.childrenAlone(ctx, s)
		if l.rule != nil && data == nil && err == nil {
			data, _, err = s.Get(ctx, l.recipe.Path())
		}
		if len(data) == 0 {
			data = l.first
		}
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		line, request := l.parse(children), Request{}
		l.obey(&request, data) // contenders that this line would refuse hold by the same number
		if err := l.read(ctx, s, line, known); err != nil {
			return nil, err
		}

		var all []Contender
		for i, n := range line {
			if c, there := known[n.Node]; there {
				c.Holds, c.Lingers = request.holds(line, i), n.Kind == Lingering
				all = append(all, c)
			}
		}
		if len(all) == len(line) || listing == maxListings {
			return all, nil
		}
	}
}

// read adds the contenders to known that are not there yet, unless their nodes are gone.
func (l *Line) read(ctx context.Context, s *protocol.Session, line []Name, known map[string]Contender) error {
	all, errs := make([]Contender, len(line)), make([]error, len(line))
	slots := make(chan struct{}, readers)
	var wg sync.WaitGroup
	for i, n := range line {
		if c, there := known[n.Node]; there {
			all[i] = c
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			data, stat, err := s.Get(ctx, l.pathOf(n.Node))
			if err != nil {
				errs[i] = err
				return
			}
			all[i] = contenderOf(n.Node, data, stat)
		})
	}
	wg.Wait()

	for i, err := range errs {
		if err == nil {
			known[line[i].Node] = all[i]
		} else if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// Names returns the contenders in line, first come first, those of other kinds included. A path
// that does not exist has none. Names blocks until the server has answered one listing, and returns
// the errors of [protocol.Do]. A server that lags may show an older line.
func (l *Line) Names(ctx context.Context, s *protocol.Session) ([]Name, error) {
	children, _, err := l.childrenAlone(ctx, s)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return l.parse(children), err
}

// Break deletes the node of a contender, given its name. A holder is told of its loss, and a waiter
// goes to the end of the line. It blocks until the server has answered or ctx ends. If ctx ends
// first, the node may be deleted all the same. Its error wraps [zk.ErrNoNode] if there is no such
// node, or [zk.ErrInvalidPath] if no contender could have that name, or is one of [protocol.Do] and
// [protocol.Recipe.Session]. It is safe for concurrent use.
func (l *Line) Break(ctx context.Context, node string) error {
	return l.change(ctx, node, func(s *protocol.Session) error { return s.Delete(ctx, l.pathOf(node), -1) })
}

// UpdateData replaces the data of a contender's node, given its name, by what update makes of them,
// or leaves them if that is nil. It blocks until the server has answered twice or ctx ends. If others
// change the data meanwhile, update is called again. Its errors are those of update, as they are,
// those of [Line.Break], and [protocol.ErrTooLarge]. It is safe for concurrent use.
func (l *Line) UpdateData(ctx context.Context, node string, update func(data []byte) ([]byte, error)) error {
	return l.change(ctx, node, func(s *protocol.Session) error {
		for synced := false; ; synced = true {
			data, stat, err := s.Get(ctx, l.pathOf(node))
			if errors.Is(err, zk.ErrNoNode) && !synced { // the server may lag
				if err := s.Sync(ctx, l.recipe.Path()); err != nil {
					return err
				}
				continue
			} else if err != nil {
				return err
			}
			data, err = update(data)
			if data == nil || err != nil {
				return err
			}
			_, err = s.Set(ctx, l.pathOf(node), data, stat.Version)
			if !errors.Is(err, zk.ErrBadVersion) {
				return err
			}
			if err := s.Sync(ctx, l.recipe.Path()); err != nil { // if it was an attempt of ours, update sees that
				return err
			}
		}
	})
}

// change calls do, if a contender could have this name.
func (l *Line) change(ctx context.Context, node string, do func(*protocol.Session) error) error {
	if err := l.made().ValidateCall(ctx, nil); err != nil {
		return err
	}
	_, ok := l.name(node)
	if !ok || protocol.ValidatePath("/"+node) != nil || strings.Contains(node, "/") {
		return l.recipe.Wrap(fmt.Errorf("%w: %q is not a contender's name", zk.ErrInvalidPath, node))
	}
	s, err := l.made().Session(ctx)
	if err == nil {
		err = do(s)
	}
	return l.recipe.Wrap(err)
}
