// Package survey recognises the recipes below a path of ZooKeeper. For each node it finds the
// recipe, the contenders that hold it and the contenders that wait. It knows the nodes of this
// module's recipes and of Apache Curator, kazoo and go-zookeeper's zk.Lock.
//
// A survey only reads: it sets no watch and creates nothing. It's a picture of one moment if its
// server answers at one moment (nodes that come or go meanwhile can be missing).
//
// A recipe is recognised by its nodes' names. If the names can mean several things, the data
// decides. If the data can't decide either, the most general name is used (a node that never had
// children can be a barrier or nothing at all).
package survey
