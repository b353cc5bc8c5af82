package survey

import "path"

// Stale reports whether the watches of nodes, and of the listings that have them, have all fired.
func (v *Viewer) Stale(nodes ...string) bool {
	m := v.memory.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, node := range nodes {
		if !m.data[node].stale() || !m.lists[path.Dir(node)].stale() {
			return false
		}
	}
	return true
}

// Knows reports whether v would learn how the holder with this path ends.
func (v *Viewer) Knows(path string) bool {
	m := v.memory.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.data[path]
	return s != nil && m.hears(s)
}
