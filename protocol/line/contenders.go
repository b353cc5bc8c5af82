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

// A Contender is one node in line, a holder's or a waiter's. If the client may not read the node,
// Token, Data and Since are zero (and Session is what the name says).
type Contender struct {
	Node    string    // the node's name below the recipe's path
	Session int64     // the session that owns the node
	Token   int64     // the node's czxid, which is the fencing token of its owner
	Data    []byte    // the node's data
	Since   time.Time // when the node was created, by the server's clock
	Holds   bool      // it is granted, by the rules of its own library
	Lingers bool      // it may be unused if it is alone in line (with others behind it, it is in use)
}

// maxListings is how often the line is listed again because a contender has left it meanwhile.
const maxListings = 4

// Contenders returns the contenders in line as of a moment after the call began, in order. It
// includes contenders of other kinds, because contenders behind them wait for them. If the path
// doesn't exist, it returns none.
//
// Contenders makes a request for each node, and blocks until the server has answered. If a
// contender leaves between the listing and its request, the line is listed again because a holder
// may have replaced its node. (After the fourth listing, a holder that replaces its node is
// missing.) Contenders returns the errors that [recipe.Do] and [recipe.Recipe.Session] return, with
// recipe and path. It is safe for concurrent use.
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

		line, request := l.Among(children), Request{}
		l.obey(&request, data) // an error doesn't matter: contenders that this line refuses hold by the same number
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

// read adds the contenders in line to known, unless their nodes are gone. It returns the error of a
// request.
func (l *Line) read(ctx context.Context, s *recipe.Session, line []Name, known map[string]Contender) error {
	unread := slices.DeleteFunc(slices.Clone(line), func(n Name) bool {
		_, there := known[n.Node]
		return there
	})
	all, err := recipe.ReadAll(unread, func(n Name) (Contender, error) {
		data, stat, err := s.Get(ctx, l.pathOf(n.Node))
		switch {
		case err == nil:
			return Contender{Node: n.Node, Session: stat.EphemeralOwner, Token: stat.Czxid, Data: data, Since: time.UnixMilli(stat.Ctime)}, nil
		case errors.Is(err, zk.ErrNoAuth):
			return Contender{Node: n.Node, Session: n.Owner.Session}, nil // what the name says
		}
		return Contender{}, err
	})

	for _, c := range all {
		if c.Node != "" {
			known[c.Node] = c
		}
	}
	return err
}

// Names returns the contenders in line, in order of arrival. It includes contenders of other kinds.
// If the path doesn't exist, it returns none. Names blocks until the server has answered one
// listing (a server that lags can show an older line). It returns the errors that [recipe.Do]
// returns.
func (l *Line) Names(ctx context.Context, s *recipe.Session) ([]Name, error) {
	children, _, err := l.childrenAlone(ctx, s)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return l.Among(children), err
}

// Break deletes the contender's node with this name. A holder's grant ends, and a waiter goes to
// the end of the line. Break blocks until the server has answered or ctx ends. (If ctx ends first,
// the node may be deleted all the same.)
//
// The error wraps [zk.ErrNoNode] if there is no such node, and [zk.ErrInvalidPath] if no contender
// can have that name. Break also returns the errors that [recipe.Do] and [recipe.Recipe.Session]
// return. It is safe for concurrent use.
func (l *Line) Break(ctx context.Context, node string) error {
	return l.change(ctx, node, func(s *recipe.Session) error { return s.Delete(ctx, l.pathOf(node), -1) })
}

// UpdateData replaces the data of the contender's node with this name. update gets the data and
// returns the new data, or nil to leave it. If another client changes the data meanwhile, update is
// called again. UpdateData blocks until the server has answered twice or ctx ends.
//
// It returns update's error as it is, [protocol.ErrTooLarge] and the errors that [Line.Break]
// returns. It is safe for concurrent use.
func (l *Line) UpdateData(ctx context.Context, node string, update func(data []byte) ([]byte, error)) error {
	return l.change(ctx, node, func(s *recipe.Session) error {
		for synced := false; ; synced = true {
			data, stat, err := s.Get(ctx, l.pathOf(node))
			// Before the node counts as gone, make sure that the server doesn't lag.
			if errors.Is(err, zk.ErrNoNode) && !synced {
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

			// If an attempt of ours has changed the version, update sees that.
			if err := s.Sync(ctx, l.recipe.Path()); err != nil {
				return err
			}
		}
	})
}

// change calls do, if a contender can have this name.
func (l *Line) change(ctx context.Context, node string, do func(*recipe.Session) error) error {
	if err := l.made().ValidateCall(ctx, nil); err != nil {
		return err
	}
	_, ok := l.name(node)
	if !ok || recipe.ValidatePath("/"+node) != nil || strings.Contains(node, "/") {
		return l.recipe.Wrap(fmt.Errorf("%w: %q is not a contender's name", zk.ErrInvalidPath, node))
	}

	s, err := l.made().Session(ctx)
	if err == nil {
		err = do(s)
	}

	return l.recipe.Wrap(err)
}
