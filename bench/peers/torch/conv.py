"""bench/conv: convolutions, pooling and BatchNorm, forward and with the gradients."""
import torch
import torch.nn as nn

import measure as m



def layer(name, module, *shape, data=False):
    forward, both = name + "/forward", name + "/both"
    if not m.wants(forward, both):
        return
    x = torch.randn(shape[0] // m.SIZE, *shape[1:], requires_grad=not data)
    gy = torch.randn_like(module(x))
    params = list(module.parameters()) + ([] if data else [x])

    def run():
        with torch.no_grad():
            module.eval()(x)

    def gradients():
        module.train()
        if m.SIZE > 1:
            grads = torch.autograd.grad((module(x) * gy).sum(), params)
            for g in grads[:len(params) - (not data)]:
                m.dist.all_reduce(g)
        else:
            torch.autograd.grad((module(x) * gy).sum(), params)
    m.case(forward, run)
    m.case(both, gradients)


image = (8, 64, 56, 56)
layer("3x3", nn.Conv2d(64, 64, 3, padding=1, bias=False), *image)
layer("3x3 of 128", nn.Conv2d(128, 128, 3, padding=1, bias=False), 8, 128, 28, 28)
layer("3x3 of 512", nn.Conv2d(512, 512, 3, padding=1, bias=False), 8, 512, 7, 7)
layer("3x3/2", nn.Conv2d(64, 128, 3, stride=2, padding=1, bias=False), *image)
layer("1x1", nn.Conv2d(256, 64, 1, bias=False), 8, 256, 56, 56)
layer("small", nn.Conv2d(3, 32, 3, padding=1, bias=False), 32, 3, 32, 32)
layer("stem", nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), 8, 3, 224, 224, data=True)
layer("digits", nn.Conv2d(1, 32, 3, padding=1, bias=False), 32, 1, 28, 28, data=True)
layer("depthwise", nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), *image)
layer("grouped", nn.Conv2d(64, 64, 3, padding=1, groups=4, bias=False), *image)
layer("conv1d", nn.Conv1d(64, 64, 5, padding=2, bias=False), 16, 64, 1024)
layer("conv3d", nn.Conv3d(16, 32, 3, padding=1, bias=False), 2, 16, 16, 32, 32)
layer("transpose", nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1, bias=False), 8, 64, 28, 28)
layer("max 2x2", nn.MaxPool2d(2), *image)
layer("max 3x3/2", nn.MaxPool2d(3, stride=2, padding=1), *image)
layer("mean 2x2", nn.AvgPool2d(2), *image)
layer("mean 3x3/2", nn.AvgPool2d(3, stride=2, padding=1), *image)
layer("adaptive 7x7", nn.AdaptiveAvgPool2d(7), *image)
layer("global mean", nn.AdaptiveAvgPool2d(1), *image)
layer("batch norm", nn.BatchNorm2d(64), *image)
m.end()
