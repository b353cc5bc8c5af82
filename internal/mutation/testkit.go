package main

// The test kit, except for the embedded server.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "ensemble: -short does not leave real servers out",
			File: "recipestest/ensemble/launcher.go",
			Old:  "if testing.Short() {",
			New:  "if false {",
			Test: "TestRunsWithoutRealServers",
		},
		{
			Name: "ensemble: ZKRECIPES_REAL=0 does not leave real servers out",
			File: "recipestest/ensemble/launcher.go",
			Old:  `os.Getenv("ZKRECIPES_REAL") == "0"`,
			New:  `os.Getenv("ZKRECIPES_REAL") == "off"`,
			Test: "TestRunsWithoutRealServers",
		},
		{
			Name: "ensemble: servers that run already are used though real ones are left out",
			File: "recipestest/ensemble/real.go",
			Old:  "if err := leftOut(); err != nil {",
			New:  "if err := error(nil); err != nil {",
			Test: "TestRunsWithoutRealServers",
		},
		{
			Name: "ensemble: real servers that are required may be left out",
			File: "recipestest/ensemble/launcher.go",
			Old:  `os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1"`,
			New:  `leftOut() == nil && os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1"`,
			Test: "TestRunsWithoutRealServers",
		},
		{
			Name: "link: a request that is to fail is executed",
			File: "recipestest/link.go",
			Old:  "p.data = inPlaceOf(p.xid) // the answer comes in its turn",
			New:  "p.data = slices.Clone(p.data)",
			Test: "TestFailAnswersWithoutExecuting",
		},
		{
			Name: "link: a transaction fails for its first operation alone",
			File: "recipestest/packet.go",
			Old:  "if p.op == OpMulti {",
			New:  "if false {",
			Test: "TestFailMeetsAnyOperationOfATransaction",
		},
		{
			Name: "link: a trace shows the oldest packets",
			File: "recipestest/trace.go",
			Old:  "t.packets[t.next] = p",
			New:  "",
			Test: "TestTraceEndsWithTheLatestPackets",
		},
		{
			Name: "link: what a handshake claims is not looked at",
			File: "recipestest/zxid.go",
			Old:  "if err == nil && r.session != 0 && r.claimed < r.delivered {",
			New:  "if false && err == nil {",
			Test: "TestSessionThatGoesBackInTimeFailsTheTest",
		},
		{
			Name: "link: an answer counts as delivered before the client has read it",
			File: "recipestest/zxid.go",
			Old:  "c.unread[0].end <= c.taken",
			New:  "c.unread[0].end <= c.arrived",
			Test: "TestSessionThatGoesBackInTimeFailsTheTest",
		},
		{
			Name: "link: a connection that only closes its session has to remember",
			File: "recipestest/zxid.go",
			Old:  "p.op != OpClose && ",
			New:  "",
			Test: "TestSessionThatGoesBackInTimeFailsTheTest",
		},
		{
			Name: "link: clients that need not remember are checked",
			File: "recipestest/link.go",
			Old:  "c.checked = check",
			New:  "c.checked = true",
			Test: "TestSessionThatGoesBackInTimeFailsTheTest",
		},
		{
			Name: "lagging: all clients are connected to one follower",
			File: "recipestest/start.go",
			Old:  "dialled.Add(1)-1",
			New:  "dialled.Load()",
			Test: "TestClientsOfALaggingServerReadAnOlderState",
		},
		{
			Name: "lagging: no follower lags",
			File: "recipestest/start.go",
			Old:  "followers[i].Lag(d * time.Duration(i)",
			New:  "followers[i].Lag(0 * d * time.Duration(i)",
			Test: "TestClientsOfALaggingServerReadAnOlderState",
		},
		{
			Name: "sim: the follower knows what its client has just done",
			File: "recipestest/sim/client.go",
			Old:  "		c.follower.Lag(behind)\n",
			New:  "",
			Test: "TestSimFindsSessionsThatForgetWhatTheyHaveSeen/forgetful",
		},
		{
			Name:    "sim: simulations find a session that goes back in time",
			File:    "protocol/session.go",
			Func:    "(*session).beginHandshake",
			Old:     "return s.newest, s.err",
			New:     "return s.settled, s.err",
			Package: "./recipestest/sim",
			Test:    "TestSimMutex",
		},
	}...)
}
