// Package survey recognises what stands below a path of ZooKeeper: the recipe of each node, which
// contenders hold it, and which wait. It knows the nodes of this module's recipes, of Apache
// Curator's, of kazoo's and of go-zookeeper's zk.Lock.
//
// A survey only reads. It sets no watch, and creates nothing. It is a picture of one moment in so
// far as its server answers at one moment: nodes that come or go meanwhile may be missing.
//
// A recipe is recognised by the names of its nodes, and where names do not suffice by their data.
// What could be several things is called by the most general: a node that never
// had children may be a barrier that is set, or nothing at all.
package survey
