package laws

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// judge says what came of a call and of the next one. It has a "!" if that breaks the law: a call
// does not hang, has done once what it reports, and nothing of what it reports as failed; the next
// call works; and no more is left than without a fault.
func (s *Stage) judge(v Verb, o outcome, base int, want rehearsal) (text string) {
	s.rest()

	effect := v.since(base)
	s.gone.Store(s.gone.Load() || o.late && !want.waits())
	// What a session holds goes with it, also after the call.
	lost := s.expired.Load() && o.err == nil && o.held != nil && effect == 0 && want.effect == 1
	back := o.back()
	s.rest()

	text = class(o.err)
	open := strings.Contains(text, "uncertain") || strings.Contains(text, "lost")
	if s.gone.Load() { // so others have changed what Effect counts
		want.effect, want.left = effect, s.left()
	} else if text == "HANGS" || s.stormy.Load() || effect < 0 || effect > 1 ||
		calm(o.err) == nil && effect != want.effect && !lost ||
		calm(o.err) != nil && effect != 0 && !open && !v.Loose {
		text = "! " + text
	}

	switch {
	case s.gone.Load():
	case calm(o.err) != nil && effect == 1:
		text += ", done"
	case calm(o.err) != nil && effect == 0 && want.effect == 1:
		text += ", not done"
	case lost:
		text += ", lost later"
	case effect != want.effect:
		text += ", done ×" + strconv.Itoa(effect)
	}

	if back != nil && o.err == nil {
		text += "; giving back: " + class(back)
	}

	if disappear := s.disappear.Load(); disappear != nil {
		(*disappear)()
	}

	base, err := v.prepare()
	if err != nil {
		return "! " + text + "; then not ready: " + class(err)
	}

	next := s.do(v, s.ctx)
	s.rest()
	if effect := v.since(base); calm(next.err) != nil || effect != want.effect && !s.gone.Load() {
		text = "! " + text + "; next call: " + class(next.err) + ", done ×" + strconv.Itoa(effect)
	}

	next.back()
	s.rest()
	s.reap()

	if want.left == nil || s.gone.Load() { // this is the rehearsal
		return text
	}
	return text + difference(s.left(), want.left)
}

// left counts the nodes there are, by what their names have in common.
func (s *Stage) left() map[string]int {
	counts := make(map[string]int)
	for _, n := range s.tree() {
		counts[s.shorten(s.Path+n.path)]++
	}
	return counts
}

// difference lists the nodes that only one of the two has.
func difference(left, without map[string]int) (text string) {
	both := maps.Clone(left)
	maps.Copy(both, without)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		switch d := left[name] - without[name]; {
		case d > 0:
			text += "; more: " + name
		case d < 0:
			text += "; less: " + name
		}
	}
	return text
}
