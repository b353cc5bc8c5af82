package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A spot is the place of a session in a line of those that wait for something. Nothing depends on it
// but the order in which they get that, so they hold nothing.
type spot struct {
	session *recipe.Session
	dir     string // of the line, without the chroot
	kind    string // in the names of the nodes
	own     *recipe.Own
	others  bool // stand behind it
}

// leave leaves the line.
func (s *spot) leave() {
	if own := s.own; own != nil {
		s.own = nil
		s.session.Go(func(life context.Context, _ *recipe.Session) { own.Withdraw(life) })
	}
}

// stand enters the line unless it was entered before. It returns how many are ahead and watches on
// its own node and on up to so many nodes just ahead. When one of them goes, the line has moved.
func (s *spot) stand(ctx context.Context, most int) (ahead int, line []*recipe.Watch, err error) {
	for {
		if s.own == nil {
			s.own, err = s.session.CreateOwn(ctx, recipe.OwnNode{Dir: s.dir, Prefix: s.session.NewOwner().String() + "-" + s.kind})
			if err != nil {
				return 0, nil, err
			}
		}
		children, _, err := s.session.Children(ctx, s.dir)
		if err := ignore(err, zk.ErrNoNode); err != nil {
			return 0, nil, err
		}
		if !s.own.Among(children) { // another client has deleted it
			s.own = nil
			continue
		}
		waiting := slices.DeleteFunc(children, func(node string) bool { _, ok := s.sequence(node); return !ok })
		slices.SortFunc(waiting, func(a, b string) int {
			m, _ := s.sequence(a)
			n, _ := s.sequence(b)
			return cmp.Compare(m, n)
		})
		ahead = slices.Index(waiting, s.own.Name())
		s.others = len(waiting) > ahead+1
		line = nil
		for _, node := range waiting[max(0, ahead-most) : ahead+1] {
			w := s.session.Watch(s.dir + "/" + node)
			if _, err = w.Ready(ctx); err != nil {
				break
			}
			line = append(line, w)
		}
		if !errors.Is(err, zk.ErrNoNode) { // none is gone meanwhile
			return ahead, line, err
		}
	}
}

// sequence returns the number of a node of the line.
func (s *spot) sequence(node string) (n int32, ok bool) {
	_, number, _ := strings.Cut(node, "-"+s.kind)
	return recipe.ParseSequence(number)
}
