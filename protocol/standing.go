package protocol

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// A Standing is one node in line.
type Standing struct {
	Name    Name
	Session int64 // its owner
	Token   int64 // its czxid
	Data    []byte
	Since   time.Time // its creation, by the server's clock

	version int32 // of Data
}

// standing reads the node at an absolute path.
func (s *Session) standing(ctx context.Context, path string, name Name) (Standing, error) {
	return Do(ctx, s, func(c *zk.Conn) (Standing, error) {
		data, stat, err := c.Get(path)
		if err != nil {
			return Standing{}, err
		}
		return standingOf(name, data, stat), nil
	})
}

func standingOf(name Name, data []byte, stat *zk.Stat) Standing {
	return Standing{name, stat.EphemeralOwner, stat.Czxid, data, time.UnixMilli(stat.Ctime), stat.Version}
}

// readers is how many nodes are read at the same time.
const readers = 16

// looksAtStandings is how often the line is listed anew because somebody has left it meanwhile.
const looksAtStandings = 4

// Standings returns everybody who stands in line, in order, as of a moment after the call began; an empty line has
// none, and neither has a path that does not exist. It blocks until the server has answered, with one request for
// each node, and returns the errors of [Do] and of [Client.Session]. If somebody leaves between the list and the
// requests the line is listed again, as a holder that converts its grant leaves one place for another. Where that goes
// on and on, those who came last are missing.
func (l *Line) Standings(ctx context.Context) ([]Standing, error) {
	if err := validate(l.client, l.path, nil); err != nil {
		return nil, err
	}
	s, err := l.client.Session(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.sync(ctx, s.Path(l.path)); err != nil {
		return nil, err
	}
	known := make(map[Name]Standing)
	for look := 1; ; look++ {
		line, err := l.names(ctx, s)
		if err != nil {
			return nil, err
		}
		if err := l.read(ctx, s, line, known); err != nil {
			return nil, err
		}
		var all []Standing
		for _, n := range line {
			if standing, there := known[n]; there {
				all = append(all, standing)
			}
		}
		if len(all) == len(line) || look == looksAtStandings {
			return all, nil
		}
	}
}

// read adds to known those in line who are not, and are there.
func (l *Line) read(ctx context.Context, s *Session, line []Name, known map[Name]Standing) error {
	all, errs := make([]Standing, len(line)), make([]error, len(line))
	slots := make(chan struct{}, readers)
	var wg sync.WaitGroup
	for i, n := range line {
		if standing, there := known[n]; there {
			all[i] = standing
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			all[i], errs[i] = s.standing(ctx, s.Path(l.path)+"/"+n.Node, n)
			<-slots
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err == nil {
			known[line[i]] = all[i]
		} else if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// Break deletes the node of that name, whoever it belongs to: its holder is told, and a contender who waits goes to
// the end of the line. It blocks until the server has answered. It returns an error that wraps [zk.ErrNoNode] if
// there is no such node, [zk.ErrInvalidPath] if nobody who stands in line could have that name, and the errors of
// [Do] and [Client.Session].
func (l *Line) Break(ctx context.Context, node string) error {
	if err := validate(l.client, l.path, nil); err != nil {
		return err
	}
	if _, ok := ParseName(node, l.kinds...); !ok || ValidatePath("/"+node) != nil || parentOf("/"+node) != "/" {
		return fmt.Errorf("%w: %q is not a contender's name", zk.ErrInvalidPath, node)
	}
	s, err := l.client.Session(ctx)
	if err != nil {
		return err
	}
	return s.remove(ctx, s.Path(l.path)+"/"+node)
}
