// The programs that every SDK is tested with: echo, filter, split, slow.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"millstream/sdk/actionlib"
)

func echo(data []byte, _ int) {
	if len(data) == 0 {
		actionlib.AckMessage()
		return
	}
	if err := actionlib.WriteMessage(data); err != nil {
		actionlib.Fatal(err)
	}
}

func filter(data []byte, mod int) {
	if string(data) == "fatal" {
		actionlib.Fatal(errors.New("as you wish"))
	}
	if len(data) != 4 {
		actionlib.WriteError(fmt.Errorf("%d bytes are no number", len(data)))
	} else if binary.BigEndian.Uint32(data)%uint32(mod) != 0 {
		actionlib.AckMessage()
	} else {
		echo(data, 0)
	}
}

func split(data []byte, _ int) {
	for _, part := range bytes.Split(data, []byte(",")) {
		if len(part) > 0 {
			echo(part, 0)
		}
	}
	actionlib.AckMessage()
}

func slow(data []byte, milliseconds int) {
	time.Sleep(time.Duration(milliseconds) * time.Millisecond)
	echo(data, 0)
}

func main() {
	argument := 1
	if len(os.Args) > 2 {
		argument, _ = strconv.Atoi(os.Args[2])
	}
	work := map[string]func([]byte, int){"echo": echo, "filter": filter, "split": split, "slow": slow}[os.Args[1]]
	for {
		data, err := actionlib.ReadMessage()
		if err != nil {
			actionlib.Fatal(err)
		}
		work(data, argument)
	}
}
