module millstream/sdk

go 1.21
