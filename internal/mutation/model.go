package main

// What the model shows of the lock, the code follows: see docs/model.md.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name:    "model: a handshake claims to have seen nothing",
			File:    "protocol/connection.go",
			Old:     "zkwire.SetLastZxid(p, w.lastZxid)",
			New:     "zkwire.SetLastZxid(p, 0)",
			Package: "./internal/model",
			Test:    "TestCodeFollowsTheTraces",
		},
		{
			Name:    "model: markers are not heard of",
			File:    "protocol/line/contender.go",
			Old:     "a.first && blocker.Deleted() || blocker.Marked()",
			New:     "a.first && blocker.Deleted()",
			Package: "./internal/model",
			Test:    "TestCodeFollowsTheTraces",
		},
		{
			Name:    "model: the end of any blocker is taken for the end of all",
			File:    "protocol/line/contender.go",
			Old:     "a.first && blocker.Deleted() || blocker.Marked()",
			New:     "blocker.Deleted()",
			Package: "./internal/model",
			Test:    "TestCodeFollowsTheTraces",
		},
		{
			Name:    "model: what is made up for after a reconnect is taken for an event",
			File:    "protocol/watch.go",
			Func:    "(*Watch).Deleted",
			Old:     " && w.sameConnection()",
			New:     "",
			Package: "./internal/model",
			Test:    "TestCodeFollowsTheTraces",
		},
		{
			Name:    "model: no Sync before a node is looked for",
			File:    "protocol/own.go",
			Func:    "(*Own).settle",
			Old:     "o.session.sync(ctx, o.dir)",
			New:     "error(nil)",
			Package: "./internal/model",
			Test:    "TestCodeFollowsTheTraces",
		},
	}...)
}
